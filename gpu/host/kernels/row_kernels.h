#pragma once
// Row operations of the host device: pure functions over plain memory, one table per instruction set, all
// compiled from the text in isa/. "act" is f32, bf16 or f16. Sums run in a fixed order that depends on n
// alone; tails run through the same vector code, so no result depends on an address. Nothing here checks
// shapes: the callers do.
#include <cstdint>
#include <span>

#include "core/base/dtype.h"
#include "core/math/adam_formula.h"

namespace tandem::gpu {

/// The largest element of a row, and the sum of exp(x - max) over it.
struct RowSoftmax {
  float max;
  double sum;
};

/// Of a row that LayerNorm sees.
struct RowMoments {
  float mean, rstd;
};

/// A range of one Adam pass; weight_out may be grad's memory if their types are equal.
struct AdamRange {
  float *master, *moment1, *moment2;
  void* weight_out;
  DType weight_type;
  const void* grad;
  DType grad_type;
  int64_t n;
};

struct RowKernels {
  const char* isa;  ///< "generic", "fma3+avx2"

  /// dst[i] = src[i] in dst's type, nearest even.
  void (*cast)(void* dst, DType dst_type, const void* src, DType src_type, int64_t n);
  /// dst[i] = round_weight(src[i]).
  void (*round_weights)(void* dst, DType dst_type, const float* src, int64_t n);
  /// y[i] = a[i] + b[i]; y may be a or b.
  void (*add)(void* y, const void* a, const void* b, DType act, int64_t n);
  /// sum[i] += x[i].
  void (*accumulate)(float* sum, const void* x, DType act, int64_t n);
  /// Sum of a[i] * b[i].
  double (*dot)(const void* a, const void* b, DType act, int64_t n);

  /// y = silu(gate) * up; y may be gate or up.
  void (*swiglu_forward)(void* y, const void* gate, const void* up, DType act, int64_t n);
  /// dgate may be gate, dup may be up.
  void (*swiglu_backward)(void* dgate, void* dup, const void* dy, const void* gate, const void* up, DType act,
                          int64_t n);
  /// "gelu_new" and its gradient; dx may be x.
  void (*gelu_forward)(void* y, const void* x, DType act, int64_t n);
  void (*gelu_backward)(void* dx, const void* dy, const void* x, DType act, int64_t n);
  /// One head of 2 * half elements: y1 = x1*cos - x2*s, y2 = x2*cos + x1*s with s = sign * sin; y may be x.
  void (*rope)(void* y, const void* x, DType act, const float* cos, const float* sin, float sign,
               int64_t half);

  /// One row; returns rstd.
  float (*rms_norm_forward)(void* y, const void* x, const void* w, DType act, float eps, int64_t n);
  /// One row: dx = dresidual + rstd*dy*w - x * rstd^3/n * sum(dy*w*x). dresidual may be null or dx.
  void (*rms_norm_backward)(void* dx, const void* dresidual, const void* dy, const void* x, const void* w,
                            DType act, float rstd, int64_t n);
  /// Columns [begin, end) of [rows, width]: dw[c] += sum over rows, in order, of dy*x*rstd. end - begin
  /// <= 64.
  void (*rms_norm_weight)(float* dw, const void* dy, const void* x, const float* rstd, DType act,
                          int64_t rows, int64_t width, int64_t begin, int64_t end);

  /// The lanes of one leaf of core/math/reduce_tree.h, [kReduceLanes]: lanes[i % kReduceLanes] = sum of
  /// x[i]^2 in order. Returns the number of elements that are not finite, by exponent bits. n <= kReduceLeaf.
  int64_t (*leaf_squares)(double* lanes, const void* x, DType type, int64_t n);
  /// One row.
  RowMoments (*layer_norm_forward)(void* y, const void* x, const void* w, const void* b, DType act, float eps,
                                   int64_t n);
  /// One row; with h = (x - mean) * rstd and g = dy*w: dx = dresidual + rstd*(g - sum(g)/n - h*sum(g*h)/n).
  /// dresidual may be null or dx.
  void (*layer_norm_backward)(void* dx, const void* dresidual, const void* dy, const void* x, const void* w,
                              DType act, RowMoments moments, int64_t n);
  /// Columns [begin, end) of [rows, width]: dw[c] += sum over rows, in order, of dy*(x-mean)*rstd. end -
  /// begin
  /// <= 64.
  void (*layer_norm_weight)(float* dw, const void* dy, const void* x, const float* mean, const float* rstd,
                            DType act, int64_t rows, int64_t width, int64_t begin, int64_t end);

  RowSoftmax (*softmax_sum)(const float* x, int64_t n);
  /// out[i] = exp(x[i] - max) * factor, out in act; out may be x if act is f32.
  void (*softmax_write)(void* out, DType act, const float* x, float max, float factor, int64_t n);
  /// ds = p * (dp - delta) * scale; ds may be dp.
  void (*softmax_backward)(float* ds, const float* p, const float* dp, float delta, float scale, int64_t n);

  /// core/math/adam_formula.h over a range: the same bits in every table.
  void (*adam)(const AdamRange&, Decay, const AdamScalars&, float prediction);
};

/// The tables that this CPU can run, the fastest first.
std::span<const RowKernels* const> row_kernels();

}  // namespace tandem::gpu
