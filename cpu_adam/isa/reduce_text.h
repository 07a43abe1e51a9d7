#pragma once
// The one text of the kernels of host_reduce. Simd is an instruction set: Simd::Squares, sixteen sums in
// double (add(const T* x): the squares of 16 elements; store(double* lanes, const T*), the sums of what was
// added of that type, in order; a fused product is the same as a square, which is exact), and load(const T*)
// and store_weight(T*, floats) of kLanes floats. Its class lives in an unnamed namespace of its own file, so
// that all that is made of it has internal linkage (see adam_text.h).
#include "core/math/reduce_tree.h"
#include "cpu_adam/isa/reduce_kernels.h"

namespace tandem {

template <class Simd, class T>
double reduce_leaf(const void* plane, int64_t n) {
  const T* x = static_cast<const T*>(plane);
  typename Simd::Squares squares;
  int64_t i = 0;
  for (; i + kReduceLanes <= n; i += kReduceLanes) squares.add(x + i);
  if (i < n) {
    T last[kReduceLanes] = {};  // a zero changes no sum
    for (int64_t k = 0; i + k < n; ++k) last[k] = x[i + k];
    squares.add(last);
  }
  double lanes[kReduceLanes];
  squares.store(lanes, x);
  return reduce_lanes(lanes);
}

template <class Simd, class T>
void round_plane(void* plane, const float* from, int64_t n) {
  T* to = static_cast<T*>(plane);
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store_weight(to + i, Simd::load(from + i));
  for (; i < n; ++i) to[i] = round_weight<T>(from[i]);
}

/// As the processors' conversions do it: a signalling NaN of f16 becomes quiet.
template <class T>
TANDEM_HD float widened(T x) {
  return to_float(x);
}
template <>
TANDEM_HD float widened(f16 x) {
  const float y = to_float(x);
  return y != y ? bits_float(float_bits(y) | 0x400000u) : y;
}

template <class Simd, class T>
void widen_plane(float* to, const void* plane, int64_t n) {
  const T* from = static_cast<const T*>(plane);
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store_weight(to + i, Simd::load(from + i));
  for (; i < n; ++i) to[i] = widened(from[i]);
}

/// In the order of kReduceTypes.
template <class Simd>
constexpr ReduceKernels reduce_table() {
  return {{reduce_leaf<Simd, float>, reduce_leaf<Simd, bf16>, reduce_leaf<Simd, f16>},
          {round_plane<Simd, float>, round_plane<Simd, bf16>, round_plane<Simd, f16>},
          {widen_plane<Simd, float>, widen_plane<Simd, bf16>, widen_plane<Simd, f16>}};
}

}  // namespace tandem
