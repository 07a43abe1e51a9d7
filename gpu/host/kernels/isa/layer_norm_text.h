#pragma once
// Text of an ISA file: LayerNorm.
#include "gpu/host/kernels/isa/pointwise_text.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

RowMoments layer_norm_forward(void* y, const void* x, const void* w, const void* b, DType act, float eps,
                              int64_t n) {
  RowMoments moments{};
  with_type(act, [&](auto t) {
    using T = decltype(t);
    const double sum = row_sum(n, [&](int64_t i, auto lanes) { return load(as<T>(x) + i, lanes); });
    moments.mean = static_cast<float>(sum / static_cast<double>(n));
    const double squares = row_sum(n, [&](int64_t i, auto lanes) {
      const Floats off = load(as<T>(x) + i, lanes) - Floats(moments.mean);
      return off * off;
    });
    moments.rstd =
        static_cast<float>(1.0 / __builtin_sqrt(squares / static_cast<double>(n) + static_cast<double>(eps)));
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      const Floats h = (load(as<T>(x) + i, lanes) - Floats(moments.mean)) * Floats(moments.rstd);
      store(as<T>(y) + i, h * load(as<T>(w) + i, lanes) + load(as<T>(b) + i, lanes), lanes);
    });
  });
  return moments;
}

void layer_norm_backward(void* dx, const void* dresidual, const void* dy, const void* x, const void* w,
                         DType act, RowMoments moments, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    const Floats mean(moments.mean), rstd(moments.rstd);
    const auto slope = [&](int64_t i, auto lanes) {
      return load(as<T>(dy) + i, lanes) * load(as<T>(w) + i, lanes);
    };
    const auto normed = [&](int64_t i, auto lanes) { return (load(as<T>(x) + i, lanes) - mean) * rstd; };
    const double width = static_cast<double>(n), sum = row_sum(n, slope);
    const double along =
        row_sum(n, [&](int64_t i, auto lanes) { return slope(i, lanes) * normed(i, lanes); });
    const Floats level(static_cast<float>(sum / width)), tilt(static_cast<float>(along / width));
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      Floats d = rstd * (slope(i, lanes) - level - normed(i, lanes) * tilt);
      if (dresidual != nullptr) d = d + load(as<T>(dresidual) + i, lanes);
      store(as<T>(dx) + i, d, lanes);
    });
  });
}

void layer_norm_weight(float* dw, const void* dy, const void* x, const float* mean, const float* rstd,
                       DType act, int64_t rows, int64_t width, int64_t begin, int64_t end) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    add_column_sums(dw, rows, begin, end, [&](int64_t row, int64_t column, auto lanes) {
      const int64_t at = row * width + column;
      const Floats h = (load(as<T>(x) + at, lanes) - Floats(mean[row])) * Floats(rstd[row]);
      return load(as<T>(dy) + at, lanes) * h;
    });
  });
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
