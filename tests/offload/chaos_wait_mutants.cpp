#include "tests/offload/chaos_wait_mutants.h"

namespace tandem::testing {

std::vector<WaitMutant> wait_mutants(const ChaosSetup& setup, uint64_t seed) {
  gpu::HostDevice* device = nullptr;
  EngineOptions options = setup.options;
  options.open = chaos_device(seed, [&](gpu::HostDevice& opened) {
    opened.trace_waits();
    device = &opened;
  });
  EngineRig rig(options);
  (void)run_chaos(setup, rig);
  std::vector<WaitMutant> mutants;
  const std::vector<gpu::WaitRecord> waits = device->waits();
  for (size_t i = 0; i < waits.size(); ++i)
    if (!waits[i].redundant) mutants.push_back({i, waits[i].waiter + " waits for " + waits[i].fence});
  return mutants;
}

std::string ending_without(const ChaosSetup& setup, uint64_t seed, const WaitMutant& mutant) {
  EngineOptions options = setup.options;
  options.open = chaos_device(seed, [&](gpu::HostDevice& opened) { opened.drop_wait(mutant.index); });
  try {
    EngineRig rig(options);
    (void)run_chaos(setup, rig);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace tandem::testing
