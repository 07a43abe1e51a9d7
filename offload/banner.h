#pragma once
#include <string>

#include "offload/assembly.h"
#include "offload/memory_plan.h"

namespace tandem {

/// What a run is about to do, for a person: device, threads, schedule, batch, learning rate, clip, decay
/// groups, memory by tier and scope, keys without effect, what a save costs. disk_free: bytes on the disk of
/// the run folder.
std::string banner(const Config& config, const ModelSource& model, const Machine& machine,
                   const DataSets& data, const ParamTable& table, const TrainSetup& setup, int64_t steps,
                   uint64_t disk_free);

}  // namespace tandem
