#pragma once
// The engines that the chaos tests run: every schedule, every placement, dtype and order, tied and untied,
// small bucket pools, and runs whose lag changes both ways.
#include <ostream>
#include <string>
#include <vector>

#include "gpu/host/host_device.h"
#include "tests/offload/engine_rig.h"

namespace tandem::testing {

struct ChaosSetup {
  std::string name;
  EngineOptions options;  ///< without a seed: threads
  int64_t steps = 0;
};

inline void PrintTo(const ChaosSetup& setup, std::ostream* out) { *out << setup.name; }

const std::vector<ChaosSetup>& chaos_setups();

/// What a run shows: an evaluation behind a step in flight, and everything at its end.
struct ChaosRun {
  double evaluation = 0;
  Outcome outcome;
};

/// Three steps, an evaluation that waits for none of them more than it must, the other steps.
ChaosRun run_chaos(const ChaosSetup& setup, EngineRig& rig);
ChaosRun run_chaos(const ChaosSetup& setup, std::optional<uint64_t> seed);

/// Empty if both runs showed the same bits.
std::string difference(const ChaosRun& a, const ChaosRun& b);

/// A host device in chaos mode; `prepare` sees it before anyone else does.
std::function<std::unique_ptr<Device>(Workers&)> chaos_device(uint64_t seed,
                                                              std::function<void(gpu::HostDevice&)> prepare);

}  // namespace tandem::testing
