// Input: a byte for the format, a byte for the vocabulary, and a token file. In a format above 127 the header
// has 32 bytes, which zeros make 1024: what matters of it is in front, and short inputs change in more useful
// ways.
#include <algorithm>
#include <vector>

#include "core/data/data_loader.h"
#include "tests/fuzz/fuzzing.h"

namespace tandem {
namespace {

constexpr TokenFormat kFormats[] = {TokenFormat::automatic, TokenFormat::llmc, TokenFormat::llmq,
                                    TokenFormat::nanogpt, TokenFormat::bytes};
constexpr int64_t kVocabs[] = {256, 1, 100, 65536, 65537, 151936, int64_t{1} << 31};

void require_inside(const TokenFile& file) {
  const TokenLayout& layout = file.layout();
  const uint64_t size = file.file().size();
  require(layout.begin <= size && layout.count <= (size - layout.begin) / layout.token_bytes,
          "the tokens lie in the file");
  if (layout.mask_begin)
    require(*layout.mask_begin >= layout.begin + layout.count * layout.token_bytes &&
                *layout.mask_begin + (layout.count + 7) / 8 <= size,
            "the mask lies in the file behind the tokens");
}

/// Reads all, and the samples that a loader makes of it.
void read_through(TokenFile file, int64_t vocab) {
  require_inside(file);
  std::vector<int32_t> tokens(file.tokens());
  file.read(0, tokens);
  require(std::ranges::all_of(tokens, [&](int32_t token) { return token >= 0 && token < vocab; }),
          "tokens are below the vocabulary");
  std::vector<int32_t> targets = tokens;
  file.mask(0, targets);
  std::vector<TokenFile> files;
  files.push_back(std::move(file));
  const SampleSet set(std::move(files), 3);
  const DataLoader loader(set, {0, set.size()}, std::nullopt);
  const auto rows = static_cast<int64_t>(std::min<uint64_t>(set.size(), 100));
  std::vector<int32_t> in(static_cast<size_t>(rows) * 3), out(in.size());
  loader.fill(0, Tensor(in.data(), DType::i32, {rows, 3}), Tensor(out.data(), DType::i32, {rows, 3}));
  for (size_t i = 0; i < in.size(); ++i) {
    require(in[i] == tokens[i], "samples hold the file's tokens");
    require(out[i] == targets[i + 1], "targets are the tokens that follow, but for masked ones");
    require(out[i] == tokens[i + 1] || out[i] == kNotTrained, "a mask changes targets to -100 only");
  }
  check_targets(set, {0, set.size()});
}

std::string with_long_header(std::string_view bytes) {
  std::string file(bytes.substr(0, 32));
  file.resize(kTokenHeaderBytes, '\0');
  return file + std::string(bytes.substr(std::min<size_t>(32, bytes.size())));
}

void try_file(TokenFormat format, int64_t vocab, const std::string& bytes) {
  const std::string path = folder().write("tokens", bytes);
  accepts([&] { read_through(TokenFile(path, format, vocab), vocab); });
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::Input input(data, size);
  const auto format = input.take<uint8_t>(), vocab = input.take<uint8_t>();
  tandem::try_file(tandem::kFormats[format % 128 % std::size(tandem::kFormats)],
                   tandem::kVocabs[vocab % std::size(tandem::kVocabs)],
                   format > 127 ? tandem::with_long_header(input.rest()) : std::string(input.rest()));
  return 0;
}
