#pragma once
// Text of an ISA file: loops over a row. A body sees (index, Whole or Part) and is the same code for both, so
// an element's result depends neither on its address nor on where the row ends.
#include <limits>

#include "gpu/host/kernels/isa/batch.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

template <class T>
inline Floats load(const T* from, Whole) {
  return load(from);
}
/// Unused lanes are zero.
template <class T>
inline Floats load(const T* from, Part part) {
  T lanes[kLanes] = {};
  for (int64_t i = 0; i < part.count; ++i) lanes[i] = from[i];
  return load(lanes);
}
template <class T>
inline void store(T* to, Floats x, Whole) {
  store(to, x);
}
template <class T>
inline void store(T* to, Floats x, Part part) {
  T lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < part.count; ++i) to[i] = lanes[i];
}
template <class T>
inline void store_weight(T* to, Floats x, Whole) {
  store_weight(to, x);
}
template <class T>
inline void store_weight(T* to, Floats x, Part part) {
  T lanes[kLanes];
  store_weight(lanes, x);
  for (int64_t i = 0; i < part.count; ++i) to[i] = lanes[i];
}

/// The used lanes of x, `other` in the rest.
inline Floats used_or(Floats x, float, Whole) { return x; }
inline Floats used_or(Floats x, float other, Part part) {
  float lanes[kLanes];
  store(lanes, x);
  for (int64_t i = part.count; i < kLanes; ++i) lanes[i] = other;
  return load(lanes);
}

/// body(index, lanes) for the vectors of [begin, end).
template <class Body>
inline void for_vectors(int64_t begin, int64_t end, const Body& body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, Whole{});
  if (i < end) body(i, Part{end - i});
}

/// Sum of the lanes in order, in double.
inline double sum_of_lanes(Floats x) {
  float lanes[kLanes];
  store(lanes, x);
  double sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

constexpr int64_t kSumBlock = 1024;
constexpr int64_t kSums = 4;

/// Sum over [0, n) of term(index, lanes). Blocks of 1024 elements in four vectors of fp32 sums (at most
/// 1024/(4 * kLanes) + 2 roundings deep); lanes and blocks in order, in double.
template <class Term>
inline double row_sum(int64_t n, const Term& term) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    Floats sums[kSums] = {Floats(0.0f), Floats(0.0f), Floats(0.0f), Floats(0.0f)};
    int64_t i = begin;
    for (; i + kSums * kLanes <= end; i += kSums * kLanes)
      for (int64_t k = 0; k < kSums; ++k) sums[k] = sums[k] + term(i + k * kLanes, Whole{});
    for_vectors(i, end,
                [&](int64_t at, auto lanes) { sums[0] = sums[0] + used_or(term(at, lanes), 0.0f, lanes); });
    total += sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  return total;
}

/// The largest of x[0 .. n); NaN may be lost (sums over the row will show it).
inline float row_max(const float* x, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Floats best[kSums] = {Floats(kLowest), Floats(kLowest), Floats(kLowest), Floats(kLowest)};
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes)
    for (int64_t k = 0; k < kSums; ++k) best[k] = xsimd::max(best[k], load(x + i + k * kLanes));
  for_vectors(i, n, [&](int64_t at, auto lanes) {
    best[0] = xsimd::max(best[0], used_or(load(x + at, lanes), kLowest, lanes));
  });
  float all[kLanes];
  store(all, xsimd::max(xsimd::max(best[0], best[1]), xsimd::max(best[2], best[3])));
  float result = all[0];
  for (int64_t k = 1; k < kLanes; ++k) result = all[k] > result ? all[k] : result;
  return result;
}

/// body(T{}) with T = float, bf16 or f16.
template <class Body>
inline void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(f16{});
    default:
      __builtin_trap();  // the ops check dtypes before they enqueue
  }
}

template <class T>
inline T* as(void* p) {
  return static_cast<T*>(p);
}
template <class T>
inline const T* as(const void* p) {
  return static_cast<const T*>(p);
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
