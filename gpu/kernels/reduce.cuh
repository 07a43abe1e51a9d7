#pragma once
// Sums and maxima over the threads of a warp and of a block, in an order that depends on the number of
// threads alone.
#include "gpu/kernels/simt.h"

namespace tandem::gpu::TANDEM_SIMT {

/// The sum over aligned groups of `width` lanes, pairwise, in each of them. All lanes of the warp call it.
template <int width = kWarp, class T>
DEVICE T warp_sum(T x) {
  UNROLL for (int flip = 1; flip < width; flip *= 2) x = x + shuffle_xor(kAllLanes, x, flip);
  return x;
}

/// The sum over the threads of the block, in each of them: warps, then the warps' sums, both pairwise.
template <class T>
DEVICE T block_sum(T x) {
  SHARED_ARRAY(T, warp_sums, kBlockThreads / kWarp);
  x = warp_sum(x);
  if (lane() == 0) warp_sums[warp()] = x;
  block_barrier();
  T sum = lane() < threads() / kWarp ? static_cast<T>(warp_sums[lane()]) : T{};
  sum = warp_sum(sum);
  block_barrier();  // the next call may write
  return sum;
}

/// The largest over the threads of the block, in each of them. Between two calls the block has a barrier.
DEVICE float block_max(float x) {
  SHARED_ARRAY(float, warp_maxima, kBlockThreads / kWarp);
  const auto warp_max = [](float own) {
    UNROLL for (int flip = 1; flip < kWarp; flip *= 2) {
      const float other = shuffle_xor(kAllLanes, own, flip);
      own = other > own ? other : own;
    }
    return own;
  };
  x = warp_max(x);
  if (lane() == 0) warp_maxima[warp()] = x;
  block_barrier();
  return warp_max(lane() < threads() / kWarp ? static_cast<float>(warp_maxima[lane()]) : -kInfinity);
}

}  // namespace tandem::gpu::TANDEM_SIMT
