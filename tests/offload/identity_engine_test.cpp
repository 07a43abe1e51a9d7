// What may happen around the steps without changing a bit of them: other buckets, evaluations, an end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/math/reduce_tree.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::FormulaTokens;
using testing::Where;

struct Kind {
  const char* name;
  Schedule schedule;
  double clip = 0.5;
};
constexpr Kind kKinds[] = {{"synchronous", Schedule::synchronous},
                           {"exact_gated", Schedule::exact},
                           {"exact_early", Schedule::exact, 0},
                           {"delayed", Schedule::delayed}};

EngineOptions options_of(const Kind& kind, bool tied) {
  EngineOptions options;
  options.arch = testing::tiny_arch(tied);
  options.dtype = DType::bf16;
  options.where = Where::mixed;
  options.clip = kind.clip;
  options.on_nonfinite = OnNonfinite::stop;
  options.policy.schedule = kind.schedule;
  options.policy.warmup_steps = 2;
  options.prediction = 1;
  return options;
}

class IdentityOfEngine : public ::testing::TestWithParam<std::tuple<Kind, bool>> {
 protected:
  static EngineOptions options() { return options_of(std::get<0>(GetParam()), std::get<1>(GetParam())); }
};

/// A pool of one is the tightest: it must not wait for itself.
TEST_P(IdentityOfEngine, TheNumberOfLayerBucketsChangesNothing) {
  EngineOptions options = this->options();
  options.micro_batches = 2;
  const testing::Outcome expected = testing::run_engine(options, 6);
  for (const int buckets : {1, 3}) {
    options.layer_buckets = buckets;
    EXPECT_EQ(testing::difference(testing::run_engine(options, 6), expected), "") << buckets;
  }
}

/// Evaluations between steps, some of them while an update is in flight. What they measure on the next step's
/// tokens is that step's loss, to the bit: they read the weights that it will read.
TEST_P(IdentityOfEngine, EvaluationsChangeNothingAndReadWhatForwardReads) {
  constexpr int64_t kSteps = 9;
  const EngineOptions options = this->options();
  EngineRig rig(options);
  std::vector<double> evaluated;
  for (int64_t step = 0; step < kSteps; ++step) {
    const FormulaTokens next(options, step), other(options, step + 100);
    const int64_t version = rig.trainer().begin_evaluation();
    const bool late = options.policy.schedule == Schedule::delayed && step >= options.policy.warmup_steps;
    EXPECT_EQ(version, late ? step - 1 : step);
    (void)rig.trainer().evaluate(other.view());
    evaluated.push_back(rig.trainer().evaluate(next.view()));
    rig.trainer().step(next.view());
  }
  rig.run(0);
  EXPECT_EQ(testing::difference(rig.outcome(), testing::run_engine(options, kSteps)), "");
  for (const StepReport& report : rig.reports()) {
    const Decision& d = report.decision;
    EXPECT_EQ(evaluated[static_cast<size_t>(d.step)] / static_cast<double>(d.tokens), d.loss) << d.step;
  }
}

/// The final evaluation's weights are the rounded masters: those of a fresh engine that starts from them.
TEST_P(IdentityOfEngine, FinalizeGivesTheRoundedMasters) {
  EngineOptions options = this->options();
  EngineRig rig(options);
  rig.run(6);
  const testing::PlaneBits masters = rig.plane(Plane::master);
  const FormulaTokens tokens(options, 50);
  rig.trainer().begin_evaluation();
  const double before = rig.trainer().evaluate(tokens.view());
  rig.trainer().finalize();
  rig.trainer().begin_evaluation();
  const double after = rig.trainer().evaluate(tokens.view());

  options.fill = [&](const ParamSpec& spec, std::span<float> out) {
    std::memcpy(out.data(), masters[static_cast<size_t>(spec.block)].data() + spec.offset * 4,
                out.size_bytes());
  };
  EngineRig fresh(options);
  fresh.trainer().begin_evaluation();
  EXPECT_EQ(after, fresh.trainer().evaluate(tokens.view()));
  if (options.policy.schedule == Schedule::delayed) {
    EXPECT_NE(after, before);
  } else {
    EXPECT_EQ(after, before);
  }
}

/// An engine that ends without quiesce() lets everything in flight come to its end; the order checks watch.
TEST_P(IdentityOfEngine, MayEndWithStepsInFlight) {
  const EngineOptions options = this->options();
  for (int64_t steps = 0; steps < 6; ++steps) {
    EngineRig rig(options);
    for (int64_t step = 0; step < steps; ++step) rig.trainer().step(FormulaTokens(options, step).view());
  }
}

/// Offloaded or not, at every accumulation, with and without clipping: the same weights.
TEST(IdentityOfAccumulation, OffloadedAndDeviceOptimizersAgreeFromOneToEight) {
  EngineOptions options;
  options.dtype = DType::bf16;
  for (int64_t micro_batches = 1; micro_batches <= 8; ++micro_batches)
    for (const double clip : {0.0, 0.5}) {
      options.micro_batches = micro_batches;
      options.clip = clip;
      options.where = Where::host;
      const testing::Outcome offloaded = testing::run_engine(options, 2);
      options.where = Where::device;
      EXPECT_EQ(testing::difference(testing::run_engine(options, 2), offloaded), "")
          << micro_batches << " micro-batches, clip " << clip;
    }
}

INSTANTIATE_TEST_SUITE_P(Schedules, IdentityOfEngine,
                         ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::Bool()),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param) ? "tied" : "untied");
                         });

/// Norms, and so clipping and skips, are those of whole gradients: slices are branches of the norm's tree.
/// Blocks of 16448 and 36992 elements, so some slices are short.
TEST(IdentityOfSlices, AGradientMayBeRoundedAndSentInSlicesOfAnyPowerOfTwo) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Where where : {Where::host, Where::mixed}) {
      EngineOptions options;
      options.dtype = dtype;
      options.where = where;
      options.micro_batches = 2;
      options.clip = 0.5;
      options.policy = {.schedule = Schedule::delayed, .warmup_steps = 2};
      if (dtype == DType::f16) options.policy.loss_scale = testing::tight_loss_scale(dtype);
      options.lone_target_steps = {4};
      const testing::Outcome whole = testing::run_engine(options, 8);
      for (const int64_t leaves : {1, 2, 4, 8}) {
        options.slice_elements = leaves * kReduceLeaf;
        EXPECT_EQ(testing::difference(testing::run_engine(options, 8), whole), "") << leaves;
      }
    }
}

}  // namespace
}  // namespace tandem
