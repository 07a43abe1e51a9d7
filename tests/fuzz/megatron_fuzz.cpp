// Input: u16, the bytes of the .bin (zeros), and the .idx.
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/data/token_file.h"
#include "tests/fuzz/fuzzing.h"

namespace {

using tandem::require;

/// The lengths of an index that was accepted.
uint64_t tokens_of(std::string_view index) {
  uint64_t sequences = 0, sum = 0;
  std::memcpy(&sequences, index.data() + 18, sizeof sequences);
  for (uint64_t i = 0; i < sequences; ++i) {
    int32_t length = 0;
    std::memcpy(&length, index.data() + 34 + 4 * i, sizeof length);
    sum += static_cast<uint64_t>(length);
  }
  return sum;
}

void try_index(uint16_t data_bytes, std::string_view index) {
  const std::string data = tandem::folder().path("m.bin");
  tandem::folder().write("m.idx", std::string(index));
  if (!std::filesystem::exists(data)) tandem::folder().write("m.bin", "");
  std::filesystem::resize_file(data, data_bytes);
  tandem::accepts([&] {
    const tandem::TokenFile file(data, tandem::TokenFormat::megatron, 100);
    const tandem::TokenLayout& layout = file.layout();
    require(layout.begin == 0 && layout.count * layout.token_bytes == data_bytes, "the tokens fill the .bin");
    require(layout.count == tokens_of(index), "the index counts the tokens");
    require(!layout.mask_begin, "there is no mask");
    std::vector<int32_t> tokens(file.tokens(), 1);
    file.read(0, tokens);
    file.check_tokens(data_bytes);
    require(tokens == std::vector<int32_t>(file.tokens(), 0), "the tokens are those of the .bin");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::Input input(data, size);
  const auto data_bytes = input.take<uint16_t>();
  try_index(data_bytes, input.rest());
  return 0;
}
