#pragma once
#include <xsimd/xsimd.hpp>

namespace tandem {

/// An xsimd batch as a value type of core/math/adam_formula.h. Simd names the batch and gives what xsimd 8.1
/// doesn't round correctly on every architecture: fused (its AVX-512 fma is a product and a sum), root and
/// quotient (its NEON64 ones are estimates).
template <class Simd>
struct Lanes {
  using Batch = typename Simd::Batch;
  Batch x;
  Lanes(Batch batch) : x(batch) {}
  explicit Lanes(float all) : x(all) {}
  friend Lanes operator*(Lanes a, Lanes b) { return a.x * b.x; }
  friend Lanes operator-(Lanes a, Lanes b) { return a.x - b.x; }
  friend Lanes operator/(Lanes a, Lanes b) { return Simd::quotient(a.x, b.x); }
  friend Lanes fused(Lanes a, Lanes b, Lanes c) { return Simd::fused(a.x, b.x, c.x); }
  friend Lanes root(Lanes a) { return Simd::root(a.x); }
};

}  // namespace tandem
