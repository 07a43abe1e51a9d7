// The long form of chaos_waits_test and chaos_training_test: all mutants, many seeds.
#include <gtest/gtest.h>

#include "tests/offload/chaos_wait_mutants.h"

namespace tandem::testing {
namespace {

class ChaosSlow : public ::testing::TestWithParam<ChaosSetup> {};

TEST_P(ChaosSlow, WithoutAnyOneOfItsWaitsAnErrorIsFound) {
  for (uint64_t seed = 1; seed <= 3; ++seed)
    for (const WaitMutant& mutant : wait_mutants(GetParam(), seed))
      EXPECT_NE(ending_without(GetParam(), seed, mutant), "")
          << "seed " << seed << ", wait " << mutant.index << ": " << mutant.text;
}

TEST_P(ChaosSlow, SeedsGiveTheBitsOfTheThreads) {
  const ChaosRun threads = run_chaos(GetParam(), std::nullopt);
  for (uint64_t seed = 100; seed < 150; ++seed)
    EXPECT_EQ(difference(threads, run_chaos(GetParam(), seed)), "") << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Engines, ChaosSlow, ::testing::ValuesIn(chaos_setups()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::testing
