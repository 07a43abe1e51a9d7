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

}  // namespace
}  // namespace tandem::testing
