#pragma once
// What if a wait were missing: mutants of an engine.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/offload/chaos_setups.h"

namespace tandem::testing {

/// One wait of a run that orders something that nothing before it has ordered.
struct WaitMutant {
  size_t index = 0;  ///< of the wait, for HostDevice::drop_wait
  std::string text;  ///< who waits for what
};

/// The waits of one chaos run that the clocks don't call redundant.
std::vector<WaitMutant> wait_mutants(const ChaosSetup& setup, uint64_t seed);

/// How the same run ends without the wait: what was thrown, or nothing.
std::string ending_without(const ChaosSetup& setup, uint64_t seed, const WaitMutant& mutant);

}  // namespace tandem::testing
