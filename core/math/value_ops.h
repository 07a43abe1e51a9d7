#pragma once
// What core/math/state_codecs.h and philox.h ask of a value type beside arithmetic: here for float with its
// 32-bit word; SIMD files overload all of it for their batches. Every operation gives the same bits for each
// type, NaN included.
#include <cstdint>

#include "core/base/portable.h"

namespace tandem {

/// The unsigned 32-bit words that belong to a value type.
template <class V>
struct WordsOf;
template <>
struct WordsOf<float> {
  using type = uint32_t;
};
template <class V>
using Words = typename WordsOf<V>::type;

TANDEM_HD uint32_t bits_of(float x) { return float_bits(x); }
TANDEM_HD float float_of(uint32_t bits) { return bits_float(bits); }

template <int kBits>
TANDEM_HD uint32_t shift_left(uint32_t x) {
  return x << kBits;
}
/// Zeros come in.
template <int kBits>
TANDEM_HD uint32_t shift_right(uint32_t x) {
  return x >> kBits;
}

/// What choose takes: where x is NaN; where a >= b, unsigned.
TANDEM_HD bool is_nan(float x) { return x != x; }
TANDEM_HD bool at_least(uint32_t a, uint32_t b) { return a >= b; }
TANDEM_HD uint32_t choose(bool where, uint32_t yes, uint32_t no) { return where ? yes : no; }

TANDEM_HD uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
TANDEM_HD uint32_t greatest(uint32_t a, uint32_t b) { return a > b ? a : b; }

/// |x|; a NaN keeps its other bits.
TANDEM_HD float magnitude(float x) { return bits_float(float_bits(x) & 0x7FFFFFFFu); }

/// The 64 bits of a * b.
template <class W>
struct WideProduct {
  W high, low;
};
TANDEM_HD WideProduct<uint32_t> wide_product(uint32_t a, uint32_t b) {
  const uint64_t product = static_cast<uint64_t>(a) * b;
  return {static_cast<uint32_t>(product >> 32), static_cast<uint32_t>(product)};
}

}  // namespace tandem
