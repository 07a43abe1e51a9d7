#pragma once
// Text of an ISA file: a vector of floats from and to memory by the scalar conversions of core/base/dtype.h.
#include "gpu/host/kernels/isa/batch.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

template <class T>
inline Floats load(const T* from) {
  float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = to_float(from[i]);
  return load(lanes);
}
template <class T>
inline void store(T* to, Floats x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < kLanes; ++i) to[i] = round_to<T>(lanes[i]);
}
template <class T>
inline void store_weight(T* to, Floats x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < kLanes; ++i) to[i] = round_weight<T>(lanes[i]);
}

inline Doubles doubles_from(Floats x, int64_t first) {
  float lanes[kLanes];
  double widened[kDoubles];
  store(lanes, x);
  for (int64_t i = 0; i < kDoubles; ++i) widened[i] = static_cast<double>(lanes[first + i]);
  return Doubles::load_unaligned(widened);
}
inline Doubles lower_doubles(Floats x) { return doubles_from(x, 0); }
inline Doubles upper_doubles(Floats x) { return doubles_from(x, kDoubles); }

/// a * b + c with one rounding.
inline Floats fused_batch(Floats a, Floats b, Floats c) {
#if defined(__aarch64__)
  return xsimd::fma(a, b, c);
#else
  float x[kLanes], y[kLanes], z[kLanes];
  store(x, a);
  store(y, b);
  store(z, c);
  for (int64_t i = 0; i < kLanes; ++i)
    z[i] = __builtin_fmaf(x[i], y[i], z[i]);  // libm's, in software if need be
  return load(z);
#endif
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
