#pragma once
// RMSNorm. The weight's gradient is a column sum (column_sums.cuh). One block per row; sums in fp32, by pack,
// by thread, by block. dx may be dresidual.
#include "gpu/kernels/column_sums.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/reduce.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// y[r, :] = x[r, :] * rstd[r] * w, rstd[r] = 1/sqrt(mean(x[r, :]^2) + eps).
/// y, x: [R, width]; w: [width]; rstd: [R], kept for backward. Reads x twice (the second time from L2),
/// writes y once.
template <class T>
KERNEL void rms_norm_forward(T* y, float* rstd, const T* x, const T* w, int64_t width, float eps) {
  T* const to = y + block() * width;
  const T* const from = x + block() * width;
  const bool wide = aligned(to, from, w);
  float squares = 0;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack v = load(from + i, part);
    squares += sum_of(pack_of([&](int k) { return v.x[k] * v.x[k]; }), part);
  });
  const float scale = 1.0f / root(block_sum(squares) / static_cast<float>(width) + eps);
  if (thread() == 0) write(rstd + block(), scale);
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack v = load(from + i, part), weight = load(w + i, part);
    store(to + i, pack_of([&](int k) { return v.x[k] * scale * weight.x[k]; }), part);
  });
}

/// dx = dresidual + rstd*dy*w - x * rstd^3/width * sum(dy*w*x); dresidual may be null.
/// dx, dresidual, dy, x: [R, width]; w: [width]; rstd: [R]. Reads dy and x twice (the second time from L2),
/// dresidual once, writes dx once.
template <class T>
KERNEL void rms_norm_backward(T* dx, const T* dresidual, const T* dy, const T* x, const T* w,
                              const float* rstd, int64_t width) {
  const int64_t row = block() * width;
  const bool wide =
      aligned(dx + row, dy + row, x + row, w) && (dresidual == nullptr || aligned(dresidual + row));
  float along = 0;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack d = load(dy + row + i, part), weight = load(w + i, part), v = load(x + row + i, part);
    along += sum_of(pack_of([&](int k) { return d.x[k] * weight.x[k] * v.x[k]; }), part);
  });
  const float scale = read(rstd + block());
  const float along_x = block_sum(along) * scale / static_cast<float>(width) * scale * scale;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack d = load(dy + row + i, part), weight = load(w + i, part), v = load(x + row + i, part);
    Pack result = pack_of([&](int k) { return d.x[k] * weight.x[k] * scale - v.x[k] * along_x; });
    if (dresidual != nullptr) {
      const Pack residual = load(dresidual + row + i, part);
      result = pack_of([&](int k) { return result.x[k] + residual.x[k]; });
    }
    store(dx + row + i, result, part);
  });
}

/// dw's terms: dy*x*rstd.
template <class T>
struct RmsNormWeightTerm {
  const T *dy, *x;    // [R, width]
  const float* rstd;  // [R]
  int64_t width;
  DEVICE Pack operator()(int64_t row, int64_t column, int count) const {
    const int64_t at = row * width + column;
    const Part part{count, count == kPack && aligned(dy + at, x + at)};
    const Pack d = load(dy + at, part), v = load(x + at, part);
    const float scale = read(rstd + row);
    return pack_of([&](int k) { return d.x[k] * v.x[k] * scale; });
  }
};

}  // namespace tandem::gpu::TANDEM_SIMT
