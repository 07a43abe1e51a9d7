// What a step's numbers mean: means over trained tokens, steps that are not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::FormulaTokens;
using testing::Where;

constexpr int64_t kLength = 100;

EngineOptions two_sequences(int64_t micro_batches) {
  EngineOptions options;
  options.length = kLength;
  options.micro_batches = micro_batches;
  options.micro_batch = 2 / micro_batches;
  return options;
}

/// The decision about one step in which the first sequence has `first` trained tokens and the second
/// `second`.
Decision one_step(const EngineOptions& options, int64_t first, int64_t second) {
  EngineRig rig(options);
  FormulaTokens batch(options, 0);
  for (int64_t t = 0; t < kLength; ++t) {
    if (t >= first) batch.targets[static_cast<size_t>(t)] = -100;
    if (t >= second) batch.targets[static_cast<size_t>(kLength + t)] = -100;
  }
  rig.trainer().step(batch.view());
  rig.run(0);
  return rig.reports().front().decision;
}

/// Loss and gradient are means over the window's trained tokens, not means of micro-batches' means.
TEST(NumbersStep, UnevenMicroBatchesCountByToken) {
  for (const auto& [first, second] : {std::pair{1, 99}, {99, 1}, {100, 0}, {0, 100}}) {
    const Decision together = one_step(two_sequences(1), first, second),
                   apart = one_step(two_sequences(2), first, second);
    EXPECT_EQ(together.tokens, 100);
    EXPECT_EQ(apart.tokens, 100);
    EXPECT_NEAR(apart.loss, together.loss, 1e-6 * together.loss);  // fp32
    EXPECT_NEAR(apart.grad_norm, together.grad_norm, 1e-6 * together.grad_norm);
  }
  // The twin: a mean of means would be another loss.
  const double both = one_step(two_sequences(2), 1, 99).loss, lone = one_step(two_sequences(2), 1, 0).loss,
               rest = one_step(two_sequences(2), 0, 99).loss;
  EXPECT_NEAR(both, (lone + 99 * rest) / 100, 1e-6 * both);
  EXPECT_GT(std::abs(both - (lone + rest) / 2), 1e-2 * both);
}

TEST(NumbersStep, AWindowWithoutTrainedTokensChangesNothing) {
  for (const Where where : {Where::host, Where::device}) {
    EngineOptions options;
    options.where = where;
    options.blank_steps = {2};
    EngineRig rig(options);
    rig.run(2);
    const testing::Outcome before = rig.outcome();
    rig.run(1);
    EXPECT_EQ(testing::difference(rig.outcome(), before,
                                  {Plane::master, Plane::exp_avg, Plane::exp_avg_sq, Plane::weights}),
              "");
    const Decision& d = rig.reports().back().decision;
    EXPECT_TRUE(d.skipped);
    EXPECT_EQ(d.loss, 0);
    EXPECT_EQ(d.updates, 2);
  }
}

/// The error of a run that must end; what was computed before stays out of it.
Error error_of(const EngineOptions& options) {
  EngineRig rig(options);
  try {
    rig.run(8);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "the run went on";
  return Error(Status::ok, "", "", "");
}

TEST(NumbersStep, StopsAtAGradientThatIsNotFiniteAndNamesIt) {
  for (const Schedule schedule : {Schedule::synchronous, Schedule::exact, Schedule::delayed})
    for (const Where where : {Where::host, Where::device}) {
      EngineOptions options;
      options.dtype = DType::f16;
      options.where = where;
      options.policy = {schedule, 2, testing::tight_loss_scale(DType::f16)};
      options.lone_target_steps = {4};
      options.on_nonfinite = OnNonfinite::stop;
      const Error error = error_of(options);
      EXPECT_NE(std::string(error.what()).find("step 5"), std::string::npos) << error.what();
      const std::string first = where == Where::host ? "model.embed_tokens.weight" : "embedding";
      EXPECT_NE(std::string(error.what()).find(first), std::string::npos) << error.what();
    }
}

TEST(NumbersStep, GivesUpAfterSoManySkipsInARow) {
  EngineOptions options;
  options.dtype = DType::f16;
  options.policy = {Schedule::delayed, 1, testing::tight_loss_scale(DType::f16)};
  options.policy.loss_scale.min_scale = 65536;
  options.lone_target_steps = {2, 4, 5, 6};
  options.max_skipped_in_a_row = 3;
  const Error error = error_of(options);
  EXPECT_NE(std::string(error.what()).find("3 steps in a row"), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("step 7"), std::string::npos) << error.what();
}

/// Windows without trained tokens are skipped, but say nothing about gradients.
TEST(NumbersStep, BlankWindowsAreNotSkipsInARow) {
  EngineOptions options;
  options.dtype = DType::f16;
  options.policy = {Schedule::synchronous, 0, testing::tight_loss_scale(DType::f16)};
  options.blank_steps = {3, 4};
  options.lone_target_steps = {5};
  options.max_skipped_in_a_row = 2;
  EngineRig rig(options);
  EXPECT_NO_THROW(rig.run(8));
  EXPECT_EQ(rig.trainer().state().progress.skipped, 3);
}

}  // namespace
}  // namespace tandem
