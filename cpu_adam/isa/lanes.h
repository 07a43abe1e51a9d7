#pragma once
// An xsimd batch of floats and one of words as the value type of core/math/adam_formula.h, state_codecs.h and
// philox.h. Simd names the batches and gives, by intrinsics, what xsimd 8.1 doesn't round correctly on every
// architecture (fused: its AVX-512 fma is a product and a sum; root and quotient: its NEON64 ones are
// estimates) and what it lacks or leaves open for NaN.
#include <xsimd/xsimd.hpp>

#include "core/math/philox.h"
#include "core/math/value_ops.h"

namespace tandem {

template <class Simd>
struct LaneMask;

template <class Simd>
struct WordLanes {
  using Batch = typename Simd::WordBatch;
  Batch x;
  WordLanes() = default;
  WordLanes(Batch batch) : x(batch) {}
  explicit WordLanes(uint32_t all) : x(all) {}
  friend WordLanes operator+(WordLanes a, WordLanes b) { return a.x + b.x; }
  friend WordLanes operator-(WordLanes a, WordLanes b) { return a.x - b.x; }
  friend WordLanes operator&(WordLanes a, WordLanes b) { return a.x & b.x; }
  friend WordLanes operator|(WordLanes a, WordLanes b) { return a.x | b.x; }
  friend WordLanes operator^(WordLanes a, WordLanes b) { return a.x ^ b.x; }
  friend WordLanes least(WordLanes a, WordLanes b) { return Simd::least(a.x, b.x); }
  friend WordLanes greatest(WordLanes a, WordLanes b) { return Simd::greatest(a.x, b.x); }
  friend LaneMask<Simd> at_least(WordLanes a, WordLanes b) { return {Simd::at_least(a.x, b.x)}; }
  friend WideProduct<WordLanes> wide_product(WordLanes a, uint32_t b) {
    const auto product = Simd::wide_product(a.x, Batch(b));
    return {Batch(product.high), Batch(product.low)};
  }
};
template <int kBits, class Simd>
inline WordLanes<Simd> shift_left(WordLanes<Simd> a) {
  return Simd::template shift_left<kBits>(a.x);
}
template <int kBits, class Simd>
inline WordLanes<Simd> shift_right(WordLanes<Simd> a) {
  return Simd::template shift_right<kBits>(a.x);
}

/// Counters of philox.h for products of 64 bits: words in the lower halves of a batch's 64-bit lanes. What is
/// in the upper halves doesn't matter.
template <class Simd>
struct SpreadWords {
  using Batch = typename Simd::WordBatch;
  Batch x;
  SpreadWords() = default;
  SpreadWords(Batch batch) : x(batch) {}
  explicit SpreadWords(uint32_t all) : x(all) {}
  friend SpreadWords operator+(SpreadWords a, SpreadWords b) { return a.x + b.x; }
  friend SpreadWords operator^(SpreadWords a, SpreadWords b) { return a.x ^ b.x; }
  friend WideProduct<SpreadWords> wide_product(SpreadWords a, uint32_t b) {
    const SpreadWords low = Simd::product(a.x, Batch(b));
    return {Simd::upper_halves(low.x), low};
  }
};

template <class Simd>
struct LaneMask {
  typename Simd::Mask x;
  friend WordLanes<Simd> choose(LaneMask where, WordLanes<Simd> yes, WordLanes<Simd> no) {
    return Simd::choose(where.x, yes.x, no.x);
  }
};

template <class Simd>
struct Lanes {
  using Batch = typename Simd::Batch;
  Batch x;
  Lanes() = default;
  Lanes(Batch batch) : x(batch) {}
  explicit Lanes(float all) : x(all) {}
  friend Lanes operator*(Lanes a, Lanes b) { return a.x * b.x; }
  friend Lanes operator+(Lanes a, Lanes b) { return a.x + b.x; }
  friend Lanes operator-(Lanes a, Lanes b) { return a.x - b.x; }
  friend Lanes operator/(Lanes a, Lanes b) { return Simd::quotient(a.x, b.x); }
  friend Lanes fused(Lanes a, Lanes b, Lanes c) { return Simd::fused(a.x, b.x, c.x); }
  friend Lanes root(Lanes a) { return Simd::root(a.x); }
  friend LaneMask<Simd> is_nan(Lanes a) { return {Simd::is_nan(a.x)}; }
  friend WordLanes<Simd> bits_of(Lanes a) { return Simd::bits_of(a.x); }
  friend Lanes magnitude(Lanes a) { return float_of(bits_of(a) & WordLanes<Simd>(0x7FFFFFFFu)); }
};
template <class Simd>
inline Lanes<Simd> float_of(WordLanes<Simd> a) {
  return Simd::float_of(a.x);
}

template <class Simd>
struct WordsOf<Lanes<Simd>> {
  using type = WordLanes<Simd>;
};

}  // namespace tandem
