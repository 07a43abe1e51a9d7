#pragma once
// The rotary keys of a Hugging Face config.json, old (rope_theta, rope_scaling) and new (rope_parameters).
#include "core/io/json.h"
#include "core/model/arch.h"

namespace tandem::hf {

/// The rotary embedding of a config. Absent keys mean theta 10000 and no scaling. Whatever would turn
/// otherwise than transformers does is an error that names it: types that are not built, missing factors,
/// partial rotation, layer types with different values, two forms that disagree.
Rope read_rope(const json::Node& config, int64_t max_positions);

}  // namespace tandem::hf
