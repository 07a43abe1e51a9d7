#pragma once
// Biases: their additions, and the terms of their gradients, which are column sums (column_sums.cuh).
#include "gpu/kernels/pack.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// A bias's terms: dy.
template <class T>
struct BiasTerm {
  const T* dy;  // [R, width]
  int64_t width;
  DEVICE Pack operator()(int64_t row, int64_t column, int count) const {
    const T* from = dy + row * width + column;
    return load(from, {count, count == kPack && aligned(from)});
  }
};

/// y[n, :] += bias, one rounding. One pack of a row a thread. y: [N, width]; bias: [width]. Reads and writes
/// y once.
template <class T>
KERNEL void add_bias(T* y, const T* bias, int64_t rows, int64_t width) {
  const int64_t packs = (width + kPack - 1) / kPack, item = block() * threads() + thread();
  if (item >= rows * packs) return;
  const int64_t column = item % packs * kPack, left = width - column;
  T* const to = y + item / packs * width + column;
  const Part part{left < kPack ? static_cast<int>(left) : kPack, left >= kPack && aligned(to, bias + column)};
  const Pack v = load(to, part), b = load(bias + column, part);
  store(to, pack_of([&](int k) { return v.x[k] + b.x[k]; }), part);
}

}  // namespace tandem::gpu::TANDEM_SIMT
