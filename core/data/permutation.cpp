#include "core/data/permutation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/error.h"
#include "core/math/philox.h"

namespace tandem {

namespace {

constexpr uint64_t kRounds = 8;

/// One pass of the network over 2 * half_bits bits.
uint64_t feistel(uint64_t value, int half_bits, uint64_t seed, uint64_t epoch) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Philox random = philox(seed, right | round << 32, epoch);
    left ^= random.x[0] & mask;
    std::swap(left, right);
  }
  return left << half_bits | right;
}

}  // namespace

uint64_t permuted(uint64_t position, uint64_t size, uint64_t seed, uint64_t epoch) {
  ASSERT(position < size && size <= uint64_t{1} << 62, "position {} of {}", position, size);
  const int half_bits = std::max(1, static_cast<int>(std::bit_width(size - 1) + 1) / 2);
  uint64_t value = position;
  do {
    value = feistel(value, half_bits, seed, epoch);
  } while (value >= size);
  return value;
}

}  // namespace tandem
