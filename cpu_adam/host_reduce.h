#pragma once
#include <cstdint>

#include "core/base/tensor.h"
#include "core/device/workers.h"

namespace tandem {

struct SquaresAndFlags {
  double sum_of_squares = 0;
  int64_t non_finite = 0;  ///< elements whose exponent bits are all set
};

/// Over all elements of x (f32, bf16 or f16) in the order of core/math/reduce_tree.h: the same bits for every
/// number of workers. The sum is what IEEE gives where x holds infinities or NaN.
SquaresAndFlags sum_of_squares(Workers& workers, const Tensor& x);

/// dst[i] = round_weight(src[i]). dst: f32, bf16 or f16; src: f32 of equal length.
void round_weights(Workers& workers, const Tensor& dst, const Tensor& src);

/// dst[i] = src[i], of equal dtype and length; each element by the thread that adam() would give it to.
void copy_plane(Workers& workers, const Tensor& dst, const Tensor& src);

/// dst[i] = src[i], exactly. dst: f32; src: f32, bf16 or f16 of equal length.
void widen(Workers& workers, const Tensor& dst, const Tensor& src);

}  // namespace tandem
