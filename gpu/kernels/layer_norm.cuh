#pragma once
// LayerNorm. The gradients of weight and bias are column sums (column_sums.cuh). One block per row; sums in
// fp32, by pack, by thread, by block. dx may be dresidual.
#include "gpu/kernels/column_sums.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/reduce.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// y[r, :] = (x[r, :] - mean[r]) * rstd[r] * w + b, rstd[r] = 1/sqrt(var(x[r, :]) + eps), var with 1/width.
/// y, x: [R, width]; w, b: [width]; mean, rstd: [R], kept for backward. Reads x three times (from L2 after
/// the first), since squares around the mean lose no digits; writes y once.
template <class T>
KERNEL void layer_norm_forward(T* y, float* mean, float* rstd, const T* x, const T* w, const T* b,
                               int64_t width, float eps) {
  T* const to = y + block() * width;
  const T* const from = x + block() * width;
  const bool wide = aligned(to, from, w, b);
  const float n = static_cast<float>(width);
  float sum = 0, squares = 0;
  for_row(width, wide, [&](int64_t i, Part part) { sum += sum_of(load(from + i, part), part); });
  const float level = block_sum(sum) / n;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack v = load(from + i, part);
    squares += sum_of(pack_of([&](int k) { return (v.x[k] - level) * (v.x[k] - level); }), part);
  });
  const float scale = 1.0f / root(block_sum(squares) / n + eps);
  if (thread() == 0) {
    write(mean + block(), level);
    write(rstd + block(), scale);
  }
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack v = load(from + i, part), weight = load(w + i, part), bias = load(b + i, part);
    store(to + i, pack_of([&](int k) { return (v.x[k] - level) * scale * weight.x[k] + bias.x[k]; }), part);
  });
}

/// With h = (x - mean) * rstd and g = dy*w: dx = dresidual + rstd*(g - sum(g)/width - h*sum(g*h)/width);
/// dresidual may be null. dx, dresidual, dy, x: [R, width]; w: [width]; mean, rstd: [R]. Reads dy and x twice
/// (the second time from L2), dresidual once, writes dx once.
template <class T>
KERNEL void layer_norm_backward(T* dx, const T* dresidual, const T* dy, const T* x, const T* w,
                                const float* mean, const float* rstd, int64_t width) {
  const int64_t row = block() * width;
  const bool wide =
      aligned(dx + row, dy + row, x + row, w) && (dresidual == nullptr || aligned(dresidual + row));
  const float level = read(mean + block()), scale = read(rstd + block()), n = static_cast<float>(width);
  const auto slope = [&](int64_t i, Part part) {
    const Pack d = load(dy + row + i, part), weight = load(w + i, part);
    return pack_of([&](int k) { return d.x[k] * weight.x[k]; });
  };
  const auto normed = [&](int64_t i, Part part) {
    const Pack v = load(x + row + i, part);
    return pack_of([&](int k) { return (v.x[k] - level) * scale; });
  };
  float sum = 0, along = 0;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack g = slope(i, part), h = normed(i, part);
    sum += sum_of(g, part);
    along += sum_of(pack_of([&](int k) { return g.x[k] * h.x[k]; }), part);
  });
  const float shift = block_sum(sum) / n, tilt = block_sum(along) / n;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack g = slope(i, part), h = normed(i, part);
    Pack result = pack_of([&](int k) { return scale * (g.x[k] - shift - h.x[k] * tilt); });
    if (dresidual != nullptr) {
      const Pack residual = load(dresidual + row + i, part);
      result = pack_of([&](int k) { return result.x[k] + residual.x[k]; });
    }
    store(dx + row + i, result, part);
  });
}

/// dw's terms: dy*(x-mean)*rstd.
template <class T>
struct LayerNormWeightTerm {
  const T *dy, *x;           // [R, width]
  const float *mean, *rstd;  // [R]
  int64_t width;
  DEVICE Pack operator()(int64_t row, int64_t column, int count) const {
    const int64_t at = row * width + column;
    const Part part{count, count == kPack && aligned(dy + at, x + at)};
    const Pack d = load(dy + at, part), v = load(x + at, part);
    const float level = read(mean + row), scale = read(rstd + row);
    return pack_of([&](int k) { return d.x[k] * ((v.x[k] - level) * scale); });
  }
};

}  // namespace tandem::gpu::TANDEM_SIMT
