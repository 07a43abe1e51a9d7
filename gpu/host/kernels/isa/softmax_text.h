#pragma once
// Text of an ISA file: the pieces of softmax, for the loss and for attention.
#include "gpu/host/kernels/isa/loops.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

RowSoftmax softmax_sum(const float* x, int64_t n) {
  const float max = row_max(x, n);
  const double sum =
      row_sum(n, [&](int64_t i, auto lanes) { return xsimd::exp(load(x + i, lanes) - Floats(max)); });
  return {max, sum};
}

void softmax_write(void* out, DType act, const float* x, float max, float factor, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      store(as<T>(out) + i, xsimd::exp(load(x + i, lanes) - Floats(max)) * Floats(factor), lanes);
    });
  });
}

void softmax_backward(float* ds, const float* p, const float* dp, float delta, float scale, int64_t n) {
  for_vectors(0, n, [&](int64_t i, auto lanes) {
    store(ds + i, load(p + i, lanes) * (load(dp + i, lanes) - Floats(delta)) * Floats(scale), lanes);
  });
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
