#pragma once
#include <span>

#include "core/base/cpu_features.h"
#include "core/base/tensor.h"
#include "core/device/workers.h"
#include "core/math/adam_formula.h"
#include "core/math/philox.h"
#include "core/math/state_formats.h"
#include "cpu_adam/adam_sums.h"

namespace tandem {

/// The planes of a range's states, each of plane_bytes(format, plane, n) bytes: empty where the format has
/// none.
struct AdamStates {
  StateFormat format;
  std::span<std::byte> master, moment1, moment2, scale1, scale2;
};

/// States in fp32.
inline AdamStates fp32_states(std::span<float> master, std::span<float> moment1, std::span<float> moment2) {
  return {{},
          std::as_writable_bytes(master),
          std::as_writable_bytes(moment1),
          std::as_writable_bytes(moment2),
          {},
          {}};
}

/// Elements of a task of adam(), a multiple of kDrawBlock; about 450 KB of traffic with fp32 states. Thread k
/// of n has the tasks that Workers::ranges gives it of the range, so it is the one who should first touch
/// their pages.
constexpr int64_t kAdamGrain = 16384;

/// What one pass reads and writes: a range of n elements of one block (of one parameter, where the format
/// draws random bits or has groups), at any alignment of their types. Nothing overlaps, but that weights may
/// be written exactly over the gradient or over upper_in, if the elements are of equal size.
struct AdamSpans {
  AdamStates states;  // updated
  Tensor grad;        // [n] f32, bf16 or f16
  Tensor weight_out;  // [n] the gradient's type; or, for an f32 gradient, any of the three
  /// split and ulp8 only, else empty: the bf16 weights that belong to these masters ([n], round_weight of
  /// them), and where those of the new masters go ([n]).
  Tensor upper_in = {}, upper_out = {};
};

/// Where a range stands in its parameter. first: its first element there, a multiple of 64.
struct AdamPlace {
  DrawKey key = {};
  int64_t first = 0;
};

/// True if the kernels of `isa` are in this build. (Whether the CPU runs them: core/base/cpu_features.h.)
bool adam_built_for(Isa isa);

/// One pass of core/math/adam_formula.h over the whole range: decodes, updates and codes the states, and
/// writes weight_out = round_weight(p), or round_weight(p + prediction * (p - p_before)) where prediction
/// isn't 0; p is what the formula gives, before a format rounds it. With split and ulp8, what is published
/// without a prediction is upper_out, so weight_out may be the same plane; with one it may not. Each plane is
/// loaded and stored once. The same bits for every isa, count and kind of workers, and for a parameter in one
/// range or in several. An InternalError, before anything is written, for unequal lengths, null with a
/// length, misalignment, overlaps, planes that the format doesn't have or lacks, types without a kernel, an
/// isa that isn't built, random bits without a key (t is 0) or from within a block of 64. sums, if given, are
/// added to: the same bits too, but for a parameter in several ranges in the order of the calls.
void adam(Workers& workers, Isa isa, const AdamSpans& spans, Decay decay, const AdamScalars& scalars,
          float prediction, const AdamPlace& place = {}, AdamSums* sums = nullptr);

}  // namespace tandem
