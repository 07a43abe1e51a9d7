#include "core/io/stored_order.h"

#include <algorithm>
#include <cstring>

namespace tandem {

std::vector<uint64_t> file_shape(const ParamSpec& spec) {
  const std::vector<int64_t> shape = spec.stored_shape();
  return {shape.begin(), shape.end()};
}

void read_in_block_order(const ParamSpec& spec, size_t element, int64_t first, std::span<std::byte> out,
                         const ReadStored& read) {
  if (!spec.transposed) return read(static_cast<uint64_t>(first), out);
  constexpr int64_t kChunk = 1 << 20;  // elements
  const int64_t outs = spec.shape[0], ins = spec.shape[1], count = static_cast<int64_t>(out.size() / element);
  const int64_t rows = std::max<int64_t>(1, kChunk / outs);
  std::vector<std::byte> chunk;
  for (int64_t begin = 0; begin < ins; begin += rows) {
    const int64_t end = std::min(begin + rows, ins);
    chunk.resize(static_cast<size_t>((end - begin) * outs) * element);
    read(static_cast<uint64_t>(begin * outs), chunk);
    for (int64_t o = first / ins; o * ins < first + count; ++o)
      for (int64_t i = begin; i < end; ++i)
        if (const int64_t at = o * ins + i - first; at >= 0 && at < count)
          std::memcpy(&out[static_cast<size_t>(at) * element],
                      &chunk[static_cast<size_t>((i - begin) * outs + o) * element], element);
  }
}

void StoredOrder::read(const ParamSpec& spec, uint64_t offset, std::span<std::byte> out) {
  if (!spec.transposed) return fetch_(spec, static_cast<int64_t>(offset / element_), out);
  if (held_ != &spec) turn(spec);
  std::ranges::copy(std::span(turned_).subspan(offset, out.size()), out.begin());
}

size_t StoredOrder::bytes(const ParamTable& table, size_t element) {
  int64_t largest = 0;
  for (const ParamSpec& spec : table.params())
    if (spec.transposed) largest = std::max(largest, spec.numel);
  return 2 * static_cast<size_t>(largest) * element;
}

void StoredOrder::turn(const ParamSpec& spec) {
  const auto outs = static_cast<size_t>(spec.shape[0]), ins = static_cast<size_t>(spec.shape[1]);
  std::vector<std::byte> block(outs * ins * element_);
  fetch_(spec, 0, block);
  turned_.resize(block.size());
  for (size_t o = 0; o < outs; ++o)
    for (size_t i = 0; i < ins; ++i)
      std::memcpy(&turned_[(i * outs + o) * element_], &block[(o * ins + i) * element_], element_);
  held_ = &spec;
}

}  // namespace tandem
