#include "core/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <vector>

namespace tandem {

namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and read as they are");

constexpr uint64_t kHeaderBytes = 1024;
constexpr int32_t kGpt2Magic = 20240520, kLlama3Magic = 20240801;
constexpr std::string_view kLlmqMagic = "BIN.TOK\n", kMegatronIndexMagic = "MMIDIDX";

/// The first 1024 bytes, zeros where the file is shorter.
std::array<int32_t, 256> header_of(const File& file) {
  std::array<int32_t, 256> header{};
  const auto bytes = std::as_writable_bytes(std::span(header));
  file.read(0, bytes.first(std::min<uint64_t>(bytes.size(), file.size())));
  return header;
}

bool is_token_magic(int32_t magic) { return magic == kGpt2Magic || magic == kLlama3Magic; }

/// What another file of llm.c's family is, by its first number; "" if it is none.
std::string_view llmc_kind(int32_t magic) {
  switch (magic) {
    case 20240326:
    case 20240803:
      return "a model file of llm.c";
    case 20240327:
      return "a debug state of llm.c";
    case 20240522:
      return "a multiple-choice evaluation file of llm.c";
    case 20240527:
      return "an optimizer state of llm.c";
    case 20240328:
      return "a tokenizer file of llm.c";
    default:
      return "";
  }
}

/// A file that holds tokens, but in a layout that is not read yet, or no tokens at all; "" if nothing is
/// recognised.
std::string refused_kind(const File& file, const std::array<int32_t, 256>& header) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()), kHeaderBytes);
  if (text.starts_with(kLlmqMagic)) return "an llmq token file (not read yet)";
  if (text.starts_with(kMegatronIndexMagic)) return "a Megatron index (.idx; not read yet)";
  const std::filesystem::path path(file.path());
  std::error_code ignored;
  if (path.extension() == ".bin" &&
      std::filesystem::exists(std::filesystem::path(path).replace_extension(".idx"), ignored))
    return "the .bin beside a Megatron index (not read yet)";
  if (const std::string_view kind = llmc_kind(header[0]); !kind.empty()) return std::string(kind);
  return mistaken_kind(file);
}

constexpr const char* kRetokenise =
    "write tokens as llm.c (header, uint16 or uint32) or nanoGPT (bare uint16) does";

TokenFormat recognised(const File& file) {
  const auto header = header_of(file);
  if (file.size() >= 4 && is_token_magic(header[0])) return TokenFormat::llmc;
  const std::string kind = refused_kind(file, header);
  CHECK(kind.empty(), Status::failed, fmt::format("no tokens to read: the file is {}", kind),
        printable(file.path()), kRetokenise);
  throw Error(Status::failed, "the file does not say how its tokens are stored (no known magic number)",
              printable(file.path()), "set data.format to \"nanogpt\" (bare uint16) or \"bytes\"");
}

uint32_t token_at(const std::byte* bytes, uint64_t token_bytes) {
  uint32_t token = 0;
  std::memcpy(&token, bytes, token_bytes);
  return token;
}

}  // namespace

TokenFormat token_format(std::string_view name, const std::string& where) {
  if (name == "auto") return TokenFormat::automatic;
  if (name == "llmc") return TokenFormat::llmc;
  if (name == "nanogpt") return TokenFormat::nanogpt;
  if (name == "bytes") return TokenFormat::bytes;
  const bool later = name == "megatron" || name == "llmq";
  throw Error(Status::usage,
              fmt::format("token format \"{}\" is {}", printable(name), later ? "not read yet" : "unknown"),
              where, "\"auto\", \"llmc\", \"nanogpt\" or \"bytes\"");
}

TokenFile::TokenFile(std::string path, TokenFormat format, int64_t vocab)
    : file_(std::move(path)), vocab_(vocab) {
  ASSERT(vocab >= 1, "vocab {}", vocab);
  CHECK(file_.size() > 0, Status::failed, "the file is empty", printable(file_.path()),
        "check how it was written");
  if (format == TokenFormat::automatic) format = recognised(file_);
  if (format == TokenFormat::llmc) {
    open_llmc();
  } else if (format == TokenFormat::bytes) {
    open_bare(1);
  } else {
    CHECK(file_.size() < kHeaderBytes || !is_token_magic(header_of(file_)[0]), Status::failed,
          "the file was named nanogpt, but begins with the header of an llm.c token file",
          printable(file_.path()), "set data.format to \"llmc\" or \"auto\"");
    open_bare(2);
  }
}

void TokenFile::open_bare(uint64_t token_bytes) {
  CHECK(file_.size() % token_bytes == 0, Status::failed,
        fmt::format("{} bytes are no whole number of uint16 tokens", file_.size()), printable(file_.path()),
        "the file is cut off, or not a nanoGPT file");
  token_bytes_ = token_bytes;
  tokens_ = file_.size() / token_bytes;
  check_vocab();
}

void TokenFile::open_llmc() {
  const auto header = header_of(file_);
  const std::string where = printable(file_.path());
  if (!is_token_magic(header[0])) {
    const std::string kind = refused_kind(file_, header);
    throw Error(Status::failed,
                kind.empty() ? fmt::format("no llm.c token file: it begins with {}, not {} or {}", header[0],
                                           kGpt2Magic, kLlama3Magic)
                             : fmt::format("no llm.c token file, but {}", kind),
                where, kRetokenise);
  }
  CHECK(
      file_.size() >= kHeaderBytes, Status::failed,
      fmt::format("{} bytes, but the header of an llm.c token file alone has {}", file_.size(), kHeaderBytes),
      where, "the file is cut off: copy it again");
  const bool gpt2 = header[0] == kGpt2Magic;
  const int32_t version = gpt2 ? 1 : 7;
  CHECK(header[1] == version, Status::failed,
        fmt::format("version {} of the llm.c token format; magic {} goes with version {}", header[1],
                    header[0], version),
        where, "write the file with a current llm.c data script");
  CHECK(header[2] >= 0, Status::failed,
        fmt::format("the header counts {} tokens (32 bits hold at most 2147483647)", header[2]), where,
        "split the tokens into several files");
  begin_ = kHeaderBytes;
  token_bytes_ = gpt2 ? 2 : 4;
  tokens_ = static_cast<uint64_t>(header[2]);
  const uint64_t expected = kHeaderBytes + tokens_ * token_bytes_;
  CHECK(file_.size() == expected, Status::failed,
        fmt::format("the header counts {} tokens of {} bytes, so the file should have {} bytes, but has {}",
                    tokens_, token_bytes_, expected, file_.size()),
        where, file_.size() < expected ? "the file is cut off: copy it again" : "write the file again");
  check_vocab();
}

void TokenFile::check_vocab() const {
  CHECK(token_bytes_ != 2 || vocab_ <= 65536, Status::failed,
        fmt::format("the file stores tokens as uint16, but the model's vocabulary has {} (above 65536)",
                    vocab_),
        printable(file_.path()), "write the tokens as uint32 (llm.c's Llama 3 layout)");
}

void TokenFile::read(uint64_t first, std::span<int32_t> out) const {
  ASSERT(first <= tokens_ && out.size() <= tokens_ - first, "tokens {}+{} of {}", first, out.size(), tokens_);
  std::vector<std::byte> raw(out.size() * token_bytes_);
  const uint64_t begin = begin_ + first * token_bytes_;
  file_.read(begin, raw);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t token = token_at(&raw[i * token_bytes_], token_bytes_);
    CHECK(token < static_cast<uint64_t>(vocab_), Status::failed,
          fmt::format("token {} at byte {} (token number {}) is not below the model's vocabulary of {}",
                      token, begin + i * token_bytes_, first + i, vocab_),
          printable(file_.path()), "tokenise with this model's tokenizer, or check data.format");
    out[i] = static_cast<int32_t>(token);
  }
}

void TokenFile::check_tokens(uint64_t bytes) const {
  constexpr uint64_t kAtOnce = 1 << 18;
  if (static_cast<uint64_t>(vocab_) >> (8 * token_bytes_) != 0) return;
  const uint64_t count = std::min(tokens_, bytes / token_bytes_);
  std::vector<int32_t> tokens(std::min(count, kAtOnce));
  for (uint64_t first = 0; first < count; first += tokens.size())
    read(first, std::span(tokens).first(std::min<uint64_t>(tokens.size(), count - first)));
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
