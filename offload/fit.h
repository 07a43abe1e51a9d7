#pragma once
// Does it fit? The plan against the limits that really hold, before anything is allocated.
#include <cstddef>
#include <string>

#include "offload/assembly.h"
#include "offload/memory_plan.h"

namespace tandem {

/// Bytes that the process holds besides the plan: the program itself, its libraries, and the kernels' working
/// memory.
size_t fixed_bytes(const Machine& machine, const TrainSetup& setup);

/// Error(does_not_fit) with tier, need, limit and, as its hint, the first knob that makes it fit.
void check_fits(const Config& config, const Machine& machine, const TrainSetup& setup,
                const ParamTable& table);

}  // namespace tandem
