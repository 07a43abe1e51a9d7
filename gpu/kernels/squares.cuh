#pragma once
// The gradient norm's sum of squares and count of non-finite elements, in the order of
// core/math/reduce_tree.h: the same bits as on the host. Pairs of doubles {sum of squares, count} all the way
// up; a missing leaf counts as zeros, which change no sum.
#include "core/math/reduce_tree.h"
#include "gpu/kernels/reduce.cuh"

namespace tandem::gpu::TANDEM_SIMT {

constexpr int kBlockLeaves = kBlockThreads / kReduceLanes;
constexpr int kThreadNodes = 4;
constexpr int64_t kTreeNodes = kBlockThreads * kThreadNodes;  // that one block of reduce_nodes adds up

/// nodes[leaf] = {sum of x^2, number of non-finite x} over the leaf's kReduceLeaf elements. A thread is one
/// of a leaf's kReduceLanes lanes and takes every 16th element in order; blocks of kBlockThreads have
/// kBlockLeaves leaves. nodes: [leaves, 2]; x: [n], read once, a leaf in steps of 32 bytes (16-bit elements)
/// or 64 (fp32). The order is the host's, so each element costs two double operations: cards with few double
/// units are bound by them.
template <class T>
KERNEL void leaf_squares(double* nodes, const T* x, int64_t n) {
  const int64_t leaf = block() * kBlockLeaves + thread() / kReduceLanes;
  const int64_t begin = leaf * kReduceLeaf, end = begin + kReduceLeaf < n ? begin + kReduceLeaf : n;
  double squares = 0;
  int32_t faults = 0;
  for (int64_t i = begin + thread() % kReduceLanes; i < end; i += kReduceLanes) {
    const T element = read(x + i);
    const double value = static_cast<double>(widen(element));
    squares = fma(value, value, squares);  // the product is exact: the same as product, then sum
    faults += non_finite(element) ? 1 : 0;
  }
  squares = warp_sum<kReduceLanes>(squares);
  faults = warp_sum<kReduceLanes>(faults);
  if (thread() % kReduceLanes != 0 || begin >= n) return;
  write(nodes + 2 * leaf, squares);
  write(nodes + 2 * leaf + 1, static_cast<double>(faults));
}

/// up[b] = the tree over nodes [b * kTreeNodes, (b + 1) * kTreeNodes). One block of kBlockThreads each; no
/// nodes: {0, 0}. up: [blocks, 2]; nodes: [count, 2], read once.
KERNEL void reduce_nodes(double* up, const double* nodes, int64_t count) {
  const int64_t first = block() * kTreeNodes + thread() * kThreadNodes;
  double sums[2];
  UNROLL for (int part = 0; part < 2; ++part) {
    double x[kThreadNodes];
    UNROLL for (int k = 0; k < kThreadNodes; ++k) x[k] =
        first + k < count ? read(nodes + 2 * (first + k) + part) : 0.0;
    sums[part] = block_sum((x[0] + x[1]) + (x[2] + x[3]));
  }
  if (thread() != 0) return;
  write(up + 2 * block(), sums[0]);
  write(up + 2 * block() + 1, sums[1]);
}

}  // namespace tandem::gpu::TANDEM_SIMT
