#pragma once
#include "cpu_adam/adam.h"

namespace tandem {

/// States as fp32 values, of equal length n.
struct StateValues {
  std::span<float> master, moment1, moment2;
};

/// What the planes of n elements of a parameter hold. upper: the bf16 weights ([n]) that belong to masters
/// beside their weights, else empty. Not for speed: for checkpoints and the change of a
/// format.
void decode_states(Workers& workers, const AdamStates& states, const Tensor& upper, const StateValues& out);

/// The values coded into the planes, and round_weight of the masters into `upper`. What a format rounds is
/// rounded by the bits of place.key (t may not be 0 then). int8 moments that were decoded get a new scale, so
/// they come back to within one code, not bit by bit: a checkpoint of the same format keeps the planes.
void encode_states(Workers& workers, const AdamStates& states, const Tensor& upper, const StateValues& values,
                   const AdamPlace& place);

}  // namespace tandem
