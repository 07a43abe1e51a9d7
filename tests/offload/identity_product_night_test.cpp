// The full product of the ways, for every family, dtype, number of micro-batches and clipping: 3456 ways of
// 192 sums. A night's work; --gtest_filter takes a part, as in '*qwen3_bfloat16*'.
#include <gtest/gtest.h>

#include "tests/offload/identity_ways.h"

namespace tandem {
namespace {

class IdentityProductDeathTest : public ::testing::TestWithParam<testing::Sum> {};

TEST_P(IdentityProductDeathTest, EveryWayGivesTheBitsOfTheDeviceOptimizer) {
  testing::expect_no_wrong_way(GetParam(), testing::all_ways());
}

INSTANTIATE_TEST_SUITE_P(Sums, IdentityProductDeathTest, ::testing::ValuesIn(testing::all_sums()),
                         [](const ::testing::TestParamInfo<testing::Sum>& info) {
                           return testing::name_of(info.param);
                         });

TEST(IdentityProduct, IsAllOfIt) {
  size_t all = 1;
  for (const size_t values : testing::kValues) all *= values;
  EXPECT_EQ(testing::all_ways().size(), all);
  EXPECT_EQ(testing::all_sums().size(), size_t{4 * 3 * 4 * 2 * 2});
}

}  // namespace
}  // namespace tandem
