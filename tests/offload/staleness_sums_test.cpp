// What a report says of how well the gradients still fit: the sums of the update of the step before it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::PlaneBits;
using testing::Where;

using Sums = std::vector<std::optional<AdamSums>>;

EngineOptions options_of(Schedule schedule) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.policy = {schedule, 2, {.fixed = 1}};
  options.prediction = 1;
  options.clip = 0.5;
  return options;
}

/// `exact` that updates as gradients land.
EngineOptions early() {
  EngineOptions options = options_of(Schedule::exact);
  options.clip = 0;
  options.on_nonfinite = OnNonfinite::stop;
  return options;
}

Sums sums_of(const EngineRig& rig) {
  Sums sums;
  for (const StepReport& report : rig.reports()) sums.push_back(report.sums_before);
  return sums;
}

Sums run_sums(const EngineOptions& options, int64_t steps) {
  EngineRig rig(options);
  rig.run(steps);
  return sums_of(rig);
}

struct Moment {
  PlaneBits master, exp_avg;
  explicit Moment(EngineRig& rig) : master(rig.plane(Plane::master)), exp_avg(rig.plane(Plane::exp_avg)) {}
};

double at(const PlaneBits& bits, BlockId block, int64_t element) {
  float value = 0;
  std::memcpy(&value, &bits[static_cast<size_t>(block)][static_cast<size_t>(element) * 4], 4);
  return value;
}

/// From the states before and after an update with beta1 = 0, whose first moments are its gradients.
AdamSums serial_sums(const EngineRig& rig, const Moment& before, const Moment& after) {
  AdamSums sums;
  for (BlockId block = 0; block < rig.table().block_count(); ++block) {
    if (rig.setup().placement[static_cast<size_t>(block)] == Placement::device) continue;
    for (const DecayRange& range : rig.table().decay_ranges(block))
      for (int64_t i = 0; i < range.count; ++i) {
        if (i / 64 % 16 != 0) continue;
        const int64_t k = range.begin + i;
        const double g = at(after.exp_avg, block, k), m = at(before.exp_avg, block, k),
                     p = at(after.master, block, k), u = p - at(before.master, block, k);
        sums += {g * m, g * g, m * m, u * u, p * p};
      }
  }
  return sums;
}

void expect_near(const AdamSums& got, const AdamSums& want) {
  // Sums of a few hundred floats in each lane.
  const auto near = [](double a, double b, double share) { EXPECT_NEAR(a, b, share * b); };
  near(got.grad_squares, want.grad_squares, 1e-5);
  near(got.moment_squares, want.moment_squares, 1e-5);
  near(got.update_squares, want.update_squares, 1e-5);
  near(got.master_squares, want.master_squares, 1e-5);
  EXPECT_NEAR(got.grad_moment, want.grad_moment, 1e-5 * std::sqrt(want.grad_squares * want.moment_squares));
}

class NumbersStalenessSums : public ::testing::TestWithParam<std::tuple<EngineOptions, Where>> {};

TEST_P(NumbersStalenessSums, AreThoseOfALoopOverTheStatesOfTheStepBefore) {
  EngineOptions options = std::get<0>(GetParam());
  options.where = std::get<1>(GetParam());
  options.adam.beta1 = 0;
  options.blank_steps = {4};
  EngineRig rig(options);
  std::vector<Moment> moments{Moment(rig)};
  for (int64_t step = 0; step < 8; ++step) {
    rig.run(1);
    moments.emplace_back(rig);
  }
  const Sums sums = sums_of(rig);
  ASSERT_EQ(sums.size(), 8u);
  EXPECT_FALSE(sums[0]) << "no update came before it";
  EXPECT_FALSE(sums[5]) << "step 4 was skipped";
  for (const size_t i : {1, 2, 3, 4, 6, 7}) {
    ASSERT_TRUE(sums[i]) << i;
    expect_near(*sums[i], serial_sums(rig, moments[i - 1], moments[i]));
    EXPECT_EQ(sums[i]->moment_squares > 0, i > 1) << "moments are zero before the first update";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, NumbersStalenessSums,
                         ::testing::Combine(::testing::Values(options_of(Schedule::synchronous),
                                                              options_of(Schedule::exact), early(),
                                                              options_of(Schedule::delayed)),
                                            ::testing::Values(Where::host, Where::mixed)));

TEST(IdentityStalenessSums, DependOnNothingButTheUpdates) {
  constexpr int64_t kSteps = 7;
  for (const EngineOptions& base : {options_of(Schedule::exact), early(), options_of(Schedule::delayed)}) {
    const Sums expected = run_sums(base, kSteps);
    EngineOptions options = base;
    options.threads = 1;
    EXPECT_EQ(run_sums(options, kSteps), expected);
    options.threads = 3;
    options.pool = usual_pool();
    options.keep = Keep::all;
    EXPECT_EQ(run_sums(options, kSteps), expected);
    for (const uint64_t seed : {1, 2, 3}) {
      options.chaos_seed = seed;
      EXPECT_EQ(run_sums(options, kSteps), expected) << seed;
    }
    options = base;
    options.policy.schedule = Schedule::synchronous;
    EXPECT_EQ(run_sums(options, kSteps) == expected, base.policy.schedule == Schedule::exact);
  }
}

TEST(NumbersStalenessSums, AreOfUpdatesOnTheHostOnly) {
  EngineOptions options = options_of(Schedule::exact);
  options.where = Where::device;
  for (const auto& sums : run_sums(options, 3)) EXPECT_FALSE(sums);
}

TEST(ResumeStalenessSums, AreThoseOfTheUnbrokenRunButForTheFirstLine) {
  for (const EngineOptions& options : {options_of(Schedule::exact), options_of(Schedule::delayed)}) {
    const Sums whole = run_sums(options, 8);
    EngineRig first(options);
    first.run(4);
    EngineRig second(options, first.save());
    second.run(4);
    const Sums resumed = sums_of(second);
    ASSERT_EQ(resumed.size(), 4u);
    EXPECT_FALSE(resumed[0]) << "the run that made the update took its sums along";
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(resumed[i], whole[4 + i]) << i;
  }
}

}  // namespace
}  // namespace tandem
