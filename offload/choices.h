#pragma once
// What a layer keeps and where each block's optimizer is: what the keys mean, what they leave to the plan,
// and how it is said. With states in fp32 none of it changes a bit of what is computed.
#include <string>
#include <vector>

#include "core/model/params.h"
#include "offload/assembly.h"
#include "offload/setup.h"

namespace tandem {

/// What a policy keeps; of "auto" what takes least of the device.
Keep keep_of(Config::ActivationPolicy policy);

/// "keep", or "keep (chosen by auto)": the policy that holds.
std::string activations_text(const TrainSetup& setup);

/// zero_optimization.offload_optimizer.ratio, in whole blocks: from block 0 upward on the device, the rest on
/// the host. For backward ends at block 0 and the next forward begins there, so an update on the host has
/// least to hide behind there. So many blocks that the host's share of the trained parameters is nearest to
/// the ratio; of two numbers that are as near the smaller.
std::vector<Placement> place_by_ratio(const ParamTable& table, double ratio);

/// Trained parameters whose optimizer is there.
int64_t parameters_on(Placement where, const TrainSetup& setup, const ParamTable& table);

/// Of a setup that is placed by a ratio: "optimizer on the host", "optimizer on the device", "optimizer of
/// embedding and layer 0 on the device, of 61.2 % of the parameters on the host".
std::string placement_text(const TrainSetup& setup, const ParamTable& table);

/// Settles what the config leaves open by what the machine has room for: the first of these that fits, else
/// the last, which takes least of the device. Activations first, what computes least before what takes less,
/// for computing them again costs a third of forward and backward. With each of them, in `exact` and with
/// states in fp32, first the embedding's optimizer on the device. (Out of a compact format it would compute
/// other bits there.)
void settle(const Machine& machine, const ParamTable& table, TrainSetup& setup);

}  // namespace tandem
