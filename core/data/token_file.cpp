#include "core/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/data/token_open.h"

namespace tandem {

namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and read as they are");

struct FormatName {
  std::string_view name;
  TokenFormat format;
};
constexpr FormatName kFormats[] = {
    {"auto", TokenFormat::automatic},    {"llmc", TokenFormat::llmc}, {"nanogpt", TokenFormat::nanogpt},
    {"megatron", TokenFormat::megatron}, {"llmq", TokenFormat::llmq}, {"bytes", TokenFormat::bytes},
};

/// Bare uint16 from the first byte to the last.
TokenLayout nanogpt_layout(const File& file) {
  CHECK(file.size() < kTokenHeaderBytes || !(is_llmc(file) || is_llmq(file)), Status::failed,
        fmt::format("the file was named nanogpt, but is {}", token_file_kind(file)), printable(file.path()),
        "set data.format (eval: --format) to \"auto\"");
  CHECK(file.size() % 2 == 0, Status::failed,
        fmt::format("{} bytes are no whole number of uint16 tokens", file.size()), printable(file.path()),
        "the file is cut off, or not a nanoGPT file");
  return {.token_bytes = 2, .count = file.size() / 2};
}

TokenLayout layout_of(const std::vector<File>& files, TokenFormat format) {
  const File& file = files.front();
  switch (format) {
    case TokenFormat::llmc:
      return llmc_layout(file);
    case TokenFormat::llmq:
      return llmq_layout(file);
    case TokenFormat::megatron:
      return megatron_layout(file, files.back());
    case TokenFormat::bytes:
      return {.token_bytes = 1, .count = file.size()};
    case TokenFormat::nanogpt:
      return nanogpt_layout(file);
    case TokenFormat::automatic:
      break;
  }
  ASSERT(false, "token format {} was not resolved", static_cast<int>(format));
}

int64_t token_at(const std::byte* bytes, const TokenLayout& layout) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, layout.token_bytes);
  const uint32_t above = 64 - 8 * layout.token_bytes;
  return layout.is_signed ? static_cast<int64_t>(bits << above) >> above : static_cast<int64_t>(bits);
}

}  // namespace

TokenFormat token_format(std::string_view name, const std::string& where) {
  std::string known;
  for (const FormatName& entry : kFormats) {
    if (entry.name == name) return entry.format;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", entry.name);
  }
  throw Error(Status::usage, fmt::format("token format \"{}\" is unknown", printable(name)), where,
              "one of " + known);
}

std::string token_path(const std::string& path) {
  std::error_code ignored;
  const std::string index = path + ".idx";
  return !std::filesystem::exists(path, ignored) && std::filesystem::exists(index, ignored) ? index : path;
}

TokenFile::TokenFile(const std::string& path, TokenFormat format, int64_t vocab) : vocab_(vocab) {
  ASSERT(vocab >= 1, "vocab {}", vocab);
  TokenFiles found = open_token_files(path, format);
  files_ = std::move(found.files);
  layout_ = layout_of(files_, found.format);
  check_vocab();
}

void TokenFile::check_vocab() const {
  const auto vocab = static_cast<uint64_t>(vocab_);
  CHECK(layout_.vocab <= vocab, Status::failed,
        fmt::format("the file's tokens are of a vocabulary of {}, larger than the model's {}", layout_.vocab,
                    vocab_),
        printable(file().path()), "tokenise with this model's tokenizer");
  // Writers wrap larger ids silently. One byte per token is no sign of that: such tokens are bytes.
  const uint64_t most = layout_.is_signed ? 32768 : 65536;
  CHECK(layout_.token_bytes != 2 || vocab <= most, Status::failed,
        fmt::format("the file stores tokens as {}int16, but the model's vocabulary has {} (above {})",
                    layout_.is_signed ? "" : "u", vocab_, most),
        printable(file().path()),
        "write the tokens with 4 bytes each (llm.c's Llama 3 layout, Megatron's int32)");
}

void TokenFile::read(uint64_t first, std::span<int32_t> out) const {
  ASSERT(first <= tokens() && out.size() <= tokens() - first, "tokens {}+{} of {}", first, out.size(),
         tokens());
  std::vector<std::byte> raw(out.size() * layout_.token_bytes);
  const uint64_t begin = layout_.begin + first * layout_.token_bytes;
  file().read(begin, raw);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t token = token_at(&raw[i * layout_.token_bytes], layout_);
    CHECK(token >= 0 && token < vocab_, Status::failed,
          fmt::format("token {} at byte {} (token number {}) is {}", token, begin + i * layout_.token_bytes,
                      first + i,
                      token < 0 ? std::string("negative")
                                : fmt::format("not below the model's vocabulary of {}", vocab_)),
          printable(file().path()), "tokenise with this model's tokenizer, or check data.format");
    out[i] = static_cast<int32_t>(token);
  }
}

void TokenFile::mask(uint64_t first, std::span<int32_t> targets) const {
  ASSERT(first <= tokens() && targets.size() <= tokens() - first, "tokens {}+{} of {}", first, targets.size(),
         tokens());
  if (!layout_.mask_begin || targets.empty()) return;
  const uint64_t begin = first / 8, end = (first + targets.size() + 7) / 8;
  std::vector<std::byte> bits(end - begin);
  file().read(*layout_.mask_begin + begin, bits);
  for (size_t i = 0; i < targets.size(); ++i) {
    const uint64_t bit = first % 8 + i;
    if ((bits[bit / 8] >> (bit % 8) & std::byte{1}) == std::byte{0}) targets[i] = kNotTrained;
  }
}

void TokenFile::check_tokens(uint64_t bytes) const {
  constexpr uint64_t kAtOnce = 1 << 18;
  const bool all_fit = !layout_.is_signed && layout_.token_bytes < 8 &&
                       static_cast<uint64_t>(vocab_) >> (8 * layout_.token_bytes) != 0;
  if (all_fit) return;
  const uint64_t count = std::min(tokens(), bytes / layout_.token_bytes);
  std::vector<int32_t> read_at_once(std::min(count, kAtOnce));
  for (uint64_t first = 0; first < count; first += read_at_once.size())
    read(first, std::span(read_at_once).first(std::min<uint64_t>(read_at_once.size(), count - first)));
}

FileSum identity_of(const File& file) {
  constexpr uint64_t kBlock = 64 * 1024, kBlocks = 64;
  const uint64_t size = file.size();
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(&size, 1)));
  std::vector<std::byte> block;
  const auto add = [&](uint64_t begin, uint64_t bytes) {
    block.resize(bytes);
    file.read(begin, block);
    hash.update(block);
  };
  if (size <= kBlock * kBlocks) {
    add(0, size);
  } else {
    const uint64_t stride = (size - kBlock) / (kBlocks - 1);
    for (uint64_t i = 0; i + 1 < kBlocks; ++i) add(i * stride, kBlock);
    add(size - kBlock, kBlock);
  }
  return {size, hash.digest()};
}

}  // namespace tandem
