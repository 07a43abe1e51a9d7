#pragma once
// The one order of the gradient norm: squares in double; leaves of 4096 elements by flat index in the block;
// sixteen lanes in a leaf (element i goes to lane i % 16, in order), the lanes pairwise; leaves pairwise
// above; blocks in order. Header-only: g++ and nvcc. A square of a float is exact in double (48 of 53 bits),
// so contraction can't change a bit.
#include <cstdint>

#include "core/base/dtype.h"

namespace tandem {

constexpr int64_t kReduceLeaf = 4096;
constexpr int kReduceLanes = 16;

/// Adds 16 lane sums pairwise: (0+1)+(2+3) ... ; destroys lanes.
TANDEM_HD double reduce_lanes(double* lanes) {
  for (int width = kReduceLanes; width > 1; width /= 2)
    for (int i = 0; i < width / 2; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  return lanes[0];
}

/// Sum of squares of one leaf: x[0 .. n), n <= 4096.
template <class T>
TANDEM_HD double leaf_sum_of_squares(const T* x, int64_t n) {
  double lanes[kReduceLanes] = {};
  int64_t i = 0;
  for (; i + kReduceLanes <= n; i += kReduceLanes)
    for (int lane = 0; lane < kReduceLanes; ++lane) {
      const double value = static_cast<double>(to_float(x[i + lane]));
      lanes[lane] += value * value;
    }
  for (int lane = 0; i + lane < n; ++lane) {
    const double value = static_cast<double>(to_float(x[i + lane]));
    lanes[lane] += value * value;
  }
  return reduce_lanes(lanes);
}

/// Adds leaf sums pairwise, level by level, an odd one passing through; destroys leaves. 0 for none.
TANDEM_HD double reduce_leaves(double* leaves, int64_t count) {
  if (count == 0) return 0.0;
  while (count > 1) {
    const int64_t half = count / 2;
    for (int64_t i = 0; i < half; ++i) leaves[i] = leaves[2 * i] + leaves[2 * i + 1];
    if (count % 2 != 0) leaves[half] = leaves[count - 1];
    count = half + count % 2;
  }
  return leaves[0];
}

}  // namespace tandem
