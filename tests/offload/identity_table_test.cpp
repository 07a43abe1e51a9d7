// Where, how and on how many threads a step without delay runs, and what of it overlaps, changes no bit of
// it.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/offload/golden_weights.h"
#include "tests/offload/identity_ways.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::Outcome;
using testing::Sum;
using testing::Way;

TEST(Identity, TableCoversEveryPair) {
  for (size_t a = 0; a < testing::kColumns; ++a)
    for (size_t b = a + 1; b < testing::kColumns; ++b) {
      std::set<std::pair<size_t, size_t>> seen;
      for (const Way& way : testing::pairwise_ways())
        seen.insert({testing::columns_of(way)[a], testing::columns_of(way)[b]});
      EXPECT_EQ(seen.size(), testing::kValues[a] * testing::kValues[b]) << "columns " << a << " and " << b;
    }
}

TEST(Identity, SumsCoverEveryPairWithTheFamily) {
  const auto columns = [](const Sum& sum) {
    return std::array<size_t, 5>{static_cast<size_t>(sum.family), static_cast<size_t>(sum.dtype),
                                 static_cast<size_t>(sum.micro_batches), sum.clipped, sum.tied};
  };
  constexpr std::array<size_t, 5> kValues{4, 3, 4, 2, 2};
  for (size_t a = 0; a < kValues.size(); ++a)
    for (size_t b = a + 1; b < kValues.size(); ++b) {
      std::set<std::pair<size_t, size_t>> seen;
      for (const Sum& sum : testing::pairwise_sums()) seen.insert({columns(sum)[a], columns(sum)[b]});
      EXPECT_EQ(seen.size(), kValues[a] * kValues[b]) << "columns " << a << " and " << b;
    }
}

std::string name_of_sum(const ::testing::TestParamInfo<Sum>& info) { return testing::name_of(info.param); }

class IdentityOfWays : public ::testing::TestWithParam<Sum> {};
class IdentityOfWaysDeathTest : public IdentityOfWays {};

/// In a process of its own: oneTBB looks at the machine once.
TEST_P(IdentityOfWaysDeathTest, EveryWayGivesTheBitsOfTheDeviceOptimizer) {
  testing::expect_no_wrong_way(GetParam(), testing::pairwise_ways());
}

TEST_P(IdentityOfWays, WhatHappensInTheReference) {
  int64_t skipped = 0, clipped = 0;
  const Outcome reference = testing::run_engine(testing::reference_of(GetParam()), testing::kIdentitySteps);
  for (const Decision& d : reference.decisions) {
    skipped += d.skipped ? 1 : 0;
    clipped += d.clip_coef < 1 ? 1 : 0;
  }
  EXPECT_EQ(skipped, GetParam().dtype == DType::f16 ? 2 : 0);
  EXPECT_EQ(clipped > 0, GetParam().clipped);
}

/// The reference itself is right: it is the plain loop's.
TEST_P(IdentityOfWays, TheDeviceOptimizerEqualsASerialLoop) {
  EngineOptions reference = testing::reference_of(GetParam());
  reference.keep = Keep::input;
  reference.threads = 2;
  EXPECT_EQ(testing::difference(testing::run_engine(reference, testing::kIdentitySteps),
                                testing::run_serial(reference, testing::kIdentitySteps)),
            "");
}

INSTANTIATE_TEST_SUITE_P(Sums, IdentityOfWays, ::testing::ValuesIn(testing::pairwise_sums()), name_of_sum);
INSTANTIATE_TEST_SUITE_P(Sums, IdentityOfWaysDeathTest, ::testing::ValuesIn(testing::pairwise_sums()),
                         name_of_sum);

TEST(Identity, NoticesOneOtherBit) {
  EngineOptions options = testing::reference_of({testing::Family::llama, DType::f32, 2, true, false});
  const Outcome expected = testing::run_engine(options, 3);
  options.fill = [](const ParamSpec& spec, std::span<float> out) {
    golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
    if (spec.name == "model.norm.weight") out[17] = std::nextafter(out[17], 2.0f);
  };
  EXPECT_NE(testing::difference(testing::run_engine(options, 3), expected), "");
}

/// The tables' own comparison: ways of another beta1.
TEST(Identity, WaysThatComputeSomethingElseAreCounted) {
  const Sum sum{testing::Family::llama, DType::bf16, 2, false, true};
  EngineOptions other = testing::reference_of(sum);
  other.adam.beta1 = 0.91;
  const std::vector<Way> ways(testing::pairwise_ways().begin(), testing::pairwise_ways().begin() + 2);
  EXPECT_EQ(testing::wrong_ways(sum, ways, testing::run_engine(other, testing::kIdentitySteps)), 2);
}

}  // namespace
}  // namespace tandem
