#pragma once
#include <span>

#include "core/base/cpu_features.h"
#include "core/base/tensor.h"
#include "core/device/workers.h"
#include "core/math/adam_formula.h"

namespace tandem {

/// What one pass reads and writes: a range of one block. All of n elements, at any alignment of their type,
/// none overlapping another, but for weight_out, which may be exactly the gradient's memory if their types
/// are of equal size.
struct AdamSpans {
  std::span<float> master, moment1, moment2;  // [n], updated
  Tensor grad;                                // [n] f32, bf16 or f16
  Tensor weight_out;  // [n] the gradient's type; or, for an f32 gradient, any of the three
};

/// True if the kernels of `isa` are in this build. (Whether the CPU runs them: core/base/cpu_features.h.)
bool adam_built_for(Isa isa);

/// One pass of core/math/adam_formula.h over the whole range: updates master and moments, and writes
/// weight_out = round_weight(p), or round_weight(p + prediction * (p - p_before)) where prediction isn't 0.
/// The same bits for every isa, count and kind of workers. An InternalError, before anything is written, for
/// unequal lengths, null with a length, overlaps, types without a kernel, an isa that isn't built.
void adam(Workers& workers, Isa isa, const AdamSpans& spans, Decay decay, const AdamScalars& scalars,
          float prediction);

}  // namespace tandem
