#pragma once
// Text of an ISA file: the leaves of the gradient norm.
#include "core/math/reduce_tree.h"
#include "gpu/host/kernels/isa/loops.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

/// Sums of squares by lane, and counts of non-finite elements.
struct LeafLanes {
  using Counts = xsimd::batch<int32_t, Arch>;
  Doubles sums[kReduceLanes / kDoubles];
  Counts faults = Counts(0);

  LeafLanes() {
    for (Doubles& sum : sums) sum = Doubles(0.0);
  }
  /// The next kReduceLanes elements.
  template <class T>
  void add(const T* x) {
    const Counts exponent(0x7F800000);
    for (int64_t i = 0; i < kReduceLanes; i += kLanes) {
      const Floats values = load(x + i);
      const Doubles low = lower_doubles(values), high = upper_doubles(values);
      Doubles* sum = sums + i / kDoubles;
      sum[0] = sum[0] + low * low;
      sum[1] = sum[1] + high * high;
      const auto not_finite = (xsimd::bitwise_cast<Counts>(values) & exponent) == exponent;
      faults = faults + xsimd::select(not_finite, Counts(1), Counts(0));
    }
  }
};

int64_t leaf_squares(double* lanes, const void* x, DType type, int64_t n) {
  LeafLanes leaf;
  with_type(type, [&](auto t) {
    using T = decltype(t);
    const T* from = as<T>(x);
    int64_t i = 0;
    for (; i + kReduceLanes <= n; i += kReduceLanes) leaf.add(from + i);
    if (i == n) return;
    T last[kReduceLanes] = {};  // a zero changes no sum
    for (int64_t k = 0; i + k < n; ++k) last[k] = from[i + k];
    leaf.add(last);
  });
  for (int64_t i = 0; i < kReduceLanes; i += kDoubles) leaf.sums[i / kDoubles].store_unaligned(lanes + i);
  int32_t faults[kLanes];
  leaf.faults.store_unaligned(faults);
  int64_t count = 0;
  for (const int32_t one : faults) count += one;
  return count;
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
