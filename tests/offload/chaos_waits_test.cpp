// Every wait of the engine is needed: without it the vector clocks find an access that nothing orders.
//
// A mutant is a stream that never waits for one moment: the wait is dropped, and later waits of the same
// stream for the same moment with it, which would stand in for it. Only waits are dropped that order
// something: the clocks call a wait redundant when all that happened before its moment was ordered before the
// waiter already (a second lease of a block, a fence that a later one of the same stream covers). Which of
// the waits those are depends on the order in which things happened, so several seeds are tried.
#include <gtest/gtest.h>

#include "tests/offload/chaos_wait_mutants.h"

namespace tandem::testing {
namespace {

class ChaosWaits : public ::testing::TestWithParam<ChaosSetup> {};

TEST_P(ChaosWaits, WithoutOneOfThemAnErrorIsFound) {
  constexpr size_t kSample = 12;
  const std::vector<WaitMutant> mutants = wait_mutants(GetParam(), 1);
  ASSERT_GE(mutants.size(), 10u);
  const size_t stride = (mutants.size() + kSample - 1) / kSample;
  for (size_t i = 0; i < mutants.size(); i += stride)
    EXPECT_NE(ending_without(GetParam(), 1, mutants[i]), "")
        << mutants[i].text << " (" << mutants[i].index << ")";
}

INSTANTIATE_TEST_SUITE_P(Engines, ChaosWaits, ::testing::ValuesIn(chaos_setups()),
                         [](const auto& info) { return info.param.name; });

/// Waits of each kind that offloaded inputs bring, and an error without any of the first few of them.
TEST(ChaosWaitsOfOffloadedInputs, AreNeededEachWay) {
  constexpr size_t kSample = 8;
  struct Kind {
    const char *waiter, *fence;
  };
  size_t setups = 0;
  for (const ChaosSetup& setup : chaos_setups()) {
    if (setup.options.keep != Keep::input_offloaded) continue;
    ++setups;
    const std::vector<WaitMutant> mutants = wait_mutants(setup, 1);
    for (const Kind& kind : {Kind{"d2h_act", "compute"},  // an input has been written
                             {"compute", "d2h_act"},      // its memory may be written again
                             {"h2d_act", "compute"},      // the memory that it comes back to is free
                             {"compute", "h2d_act"}}) {   // it is back
      size_t found = 0;
      for (const WaitMutant& mutant : mutants) {
        const size_t at = mutant.text.find(" waits for ");
        if (mutant.text.substr(0, at).find(kind.waiter) == std::string::npos ||
            mutant.text.find(kind.fence, at) == std::string::npos || ++found > kSample)
          continue;
        EXPECT_NE(ending_without(setup, 1, mutant), "") << setup.name << ": " << mutant.text;
      }
      EXPECT_GE(found, 2u) << setup.name << ": " << kind.waiter << " for " << kind.fence;
    }
  }
  EXPECT_EQ(setups, 4u);
}

}  // namespace
}  // namespace tandem::testing
