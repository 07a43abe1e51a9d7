// Whatever order the streams and lanes run in that the fences allow, training computes the same bits: a
// seeded scheduler picks the next operation, new and scratch memory is full of NaN, every access is checked
// against the vector clocks.
#include <gtest/gtest.h>

#include <set>

#include "tests/offload/chaos_setups.h"

namespace tandem::testing {
namespace {

class ChaosTraining : public ::testing::TestWithParam<ChaosSetup> {};

TEST_P(ChaosTraining, SeedsGiveTheBitsOfTheThreads) {
  const ChaosRun threads = run_chaos(GetParam(), std::nullopt);
  for (uint64_t seed = 0; seed < 5; ++seed)
    EXPECT_EQ(difference(threads, run_chaos(GetParam(), seed)), "") << "seed " << seed;
}

/// The runs above are worth something only if the steps were of the kind that their names say.
TEST_P(ChaosTraining, GoesThroughTheLagsThatItIsFor) {
  const Outcome outcome = run_chaos(GetParam(), std::nullopt).outcome;
  const bool delayed = GetParam().options.policy.schedule == Schedule::delayed;
  const auto& overflows = GetParam().options.lone_target_steps;
  for (int64_t step = 0; step < GetParam().steps; ++step) {
    // The overflow of step 2 is known at step 4, which reads at lag 0.
    const bool late = delayed && step >= 1 && !(overflows.contains(2) && step == 4);
    EXPECT_EQ(outcome.lags.at(static_cast<size_t>(step)), late ? 1 : 0) << "step " << step;
    EXPECT_EQ(outcome.decisions.at(static_cast<size_t>(step)).skipped,
              overflows.contains(step) || GetParam().options.blank_steps.contains(step));
  }
}

/// What `exact` overlaps changes no bit of what `synchronous` computes.
class ChaosExact : public ::testing::TestWithParam<ChaosSetup> {};

TEST_P(ChaosExact, IsSynchronous) {
  ChaosSetup synchronous = GetParam();
  synchronous.options.policy.schedule = Schedule::synchronous;
  const ChaosRun expected = run_chaos(synchronous, std::nullopt);
  EXPECT_EQ(difference(run_chaos(GetParam(), std::nullopt), expected), "");
  for (uint64_t seed = 20; seed < 25; ++seed)
    EXPECT_EQ(difference(run_chaos(GetParam(), seed), expected), "") << "seed " << seed;
}

/// The stream waits of a run, in their order, as one text.
std::string waits_of(const ChaosSetup& setup, uint64_t seed) {
  gpu::HostDevice* device = nullptr;
  EngineOptions options = setup.options;
  options.open = chaos_device(seed, [&](gpu::HostDevice& opened) {
    opened.trace_waits();
    device = &opened;
  });
  EngineRig rig(options);
  (void)run_chaos(setup, rig);
  std::string text;
  for (const gpu::WaitRecord& wait : device->waits())
    text += wait.waiter + " for " + wait.fence + (wait.redundant ? ", redundant\n" : "\n");
  return text;
}

TEST_P(ChaosTraining, ASeedReplays) {
  std::set<std::string> runs;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const std::string waits = waits_of(GetParam(), seed);
    EXPECT_EQ(waits, waits_of(GetParam(), seed)) << "seed " << seed;
    runs.insert(waits);
  }
  // Only what runs behind other work can come in another order as seen by the waits; of streamed weights
  // without a delay the main thread enqueues all that waits.
  const EngineOptions& options = GetParam().options;
  const bool one_thread =
      options.policy.schedule == Schedule::synchronous ||
      (options.policy.schedule == Schedule::exact && options.window > 0 && options.where == Where::host);
  if (!one_thread) {
    EXPECT_GT(runs.size(), 1u);
  }
}

std::vector<ChaosSetup> exact_setups() {
  std::vector<ChaosSetup> setups = chaos_setups();
  std::erase_if(setups, [](const ChaosSetup& s) { return s.options.policy.schedule != Schedule::exact; });
  return setups;
}

INSTANTIATE_TEST_SUITE_P(Engines, ChaosExact, ::testing::ValuesIn(exact_setups()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Engines, ChaosTraining, ::testing::ValuesIn(chaos_setups()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::testing
