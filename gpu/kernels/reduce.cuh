#pragma once
// Sums over the threads of a warp and of a block, in an order that depends on the number of threads alone.
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

}  // namespace tandem::gpu::TANDEM_SIMT
