#pragma once
// Text of an ISA file: RMS norm.
#include "gpu/host/kernels/isa/pointwise_text.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

float rms_norm_forward(void* y, const void* x, const void* w, DType act, float eps, int64_t n) {
  float rstd = 0;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    const double squares = row_sum(n, [&](int64_t i, auto lanes) {
      const Floats v = load(as<T>(x) + i, lanes);
      return v * v;
    });
    rstd =
        static_cast<float>(1.0 / __builtin_sqrt(squares / static_cast<double>(n) + static_cast<double>(eps)));
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      store(as<T>(y) + i, load(as<T>(x) + i, lanes) * Floats(rstd) * load(as<T>(w) + i, lanes), lanes);
    });
  });
  return rstd;
}

void rms_norm_backward(void* dx, const void* dresidual, const void* dy, const void* x, const void* w,
                       DType act, float rstd, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    const double sum = row_sum(n, [&](int64_t i, auto lanes) {
      return load(as<T>(dy) + i, lanes) * load(as<T>(w) + i, lanes) * load(as<T>(x) + i, lanes);
    });
    const double r = static_cast<double>(rstd);
    const Floats along_x(static_cast<float>(sum * r * r * r / static_cast<double>(n)));
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      const Floats across = load(as<T>(dy) + i, lanes) * load(as<T>(w) + i, lanes) * Floats(rstd);
      Floats d = across - load(as<T>(x) + i, lanes) * along_x;
      if (dresidual != nullptr) d = d + load(as<T>(dresidual) + i, lanes);
      store(as<T>(dx) + i, d, lanes);
    });
  });
}

void rms_norm_weight(float* dw, const void* dy, const void* x, const float* rstd, DType act, int64_t rows,
                     int64_t width, int64_t begin, int64_t end) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    add_column_sums(dw, rows, begin, end, [&](int64_t row, int64_t column, auto lanes) {
      const int64_t at = row * width + column;
      return load(as<T>(dy) + at, lanes) * load(as<T>(x) + at, lanes) * Floats(rstd[row]);
    });
  });
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
