#pragma once
#include <cstdint>

#include "core/base/cpu_features.h"
#include "core/base/tensor.h"
#include "core/device/workers.h"

namespace tandem {

// Passes over planes in host memory, at any alignment of their types. `isa` as for adam(): it must be built
// for this architecture, and the CPU must have it. The same bits for every isa, and for every count and kind
// of workers. In the engine, masters that are loaded or published again go through round_weights and
// copy_plane; norms come from the device (core/device/ops.h), in the same order as here.

struct SquaresAndFlags {
  double sum_of_squares = 0;
  int64_t non_finite = 0;  ///< elements whose exponent bits are all set
};

/// Over all elements of x (f32, bf16 or f16) in the order of core/math/reduce_tree.h. Where x holds
/// infinities or NaN the sum is infinite or NaN, as IEEE has it (which NaN is left open).
SquaresAndFlags sum_of_squares(Workers& workers, Isa isa, const Tensor& x);

/// dst[i] = round_weight(src[i]). dst: f32, bf16 or f16; src: f32 of equal length.
void round_weights(Workers& workers, Isa isa, const Tensor& dst, const Tensor& src);

/// dst[i] = src[i], exactly, but that a signalling NaN of f16 becomes quiet. dst: f32; src: f32, bf16 or f16
/// of equal length.
void widen(Workers& workers, Isa isa, const Tensor& dst, const Tensor& src);

/// dst[i] = src[i], of equal dtype and length; each element by the thread that adam() would give it to.
void copy_plane(Workers& workers, const Tensor& dst, const Tensor& src);

}  // namespace tandem
