// The one-step delayed update is a plain loop that reads one version back, bit for bit, whatever overlaps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/offload/engine_rig.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::Outcome;
using testing::SerialFault;
using testing::Where;

constexpr int64_t kWarmup = 3, kStop = 13, kSteps = 20;
/// Two overflows in a row at lag 1, the second of which carries the scale that the first has found too high;
/// and one more after the delay has come back.
const std::set<int64_t> kOverflows = {5, 6, 14};
constexpr int64_t kBlank = 12;  ///< a step without trained tokens: skipped, but no overflow

/// Any two values of any two columns meet in some row (Delayed.TableCoversEveryPair).
struct Case {
  DType dtype;
  int64_t micro_batches;
  Where where;
  Order order;
  bool predict, tied, clipped, overflow;
  int window;  ///< of streamed weights; 0: resident
};
constexpr Order kLayer = Order::layer_major, kBatch = Order::micro_batch_major;
constexpr Case kCases[] = {
    {DType::f32, 1, Where::host, kLayer, true, true, false, true, 0},
    {DType::f32, 1, Where::mixed, kBatch, false, false, false, true, 0},
    {DType::f32, 2, Where::device, kBatch, true, true, false, true, 0},
    {DType::f32, 3, Where::mixed, kBatch, false, true, true, false, 2},
    {DType::bf16, 1, Where::device, kLayer, false, false, false, true, 0},
    {DType::bf16, 2, Where::host, kBatch, false, false, false, false, 2},
    {DType::bf16, 2, Where::mixed, kLayer, true, true, true, false, 0},
    {DType::bf16, 3, Where::device, kLayer, false, false, false, false, 0},
    {DType::f16, 1, Where::device, kLayer, false, true, true, false, 2},
    {DType::f16, 2, Where::mixed, kLayer, false, true, false, true, 0},
    {DType::f16, 3, Where::host, kBatch, true, false, true, true, 2},
};

template <class A, class B>
void expect_all_pairs(A Case::*a, B Case::*b, size_t count) {
  std::set<std::pair<A, B>> seen;
  for (const Case& c : kCases) seen.insert({c.*a, c.*b});
  EXPECT_EQ(seen.size(), count);
}

/// The columns of two values among each other and with one more column.
template <class A>
void expect_all_pairs_with_flags(A Case::*a, size_t values) {
  expect_all_pairs(a, &Case::order, values * 2);
  expect_all_pairs(a, &Case::window, values * 2);
  for (bool Case::*flag : {&Case::predict, &Case::tied, &Case::clipped, &Case::overflow})
    expect_all_pairs(a, flag, values * 2);
}

TEST(Delayed, TableCoversEveryPair) {
  expect_all_pairs(&Case::dtype, &Case::micro_batches, 9);
  expect_all_pairs(&Case::dtype, &Case::where, 9);
  expect_all_pairs(&Case::micro_batches, &Case::where, 9);
  expect_all_pairs_with_flags(&Case::dtype, 3);
  expect_all_pairs_with_flags(&Case::micro_batches, 3);
  expect_all_pairs_with_flags(&Case::where, 3);
  const auto flags = {&Case::predict, &Case::tied, &Case::clipped, &Case::overflow};
  expect_all_pairs(&Case::order, &Case::window, 4);
  for (bool Case::*a : flags) {
    expect_all_pairs(&Case::order, a, 4);
    expect_all_pairs(&Case::window, a, 4);
    for (bool Case::*b : flags)
      if (a != b) expect_all_pairs(a, b, 4);
  }
}

EngineOptions options_of(const Case& c) {
  EngineOptions options;
  options.arch = testing::tiny_arch(c.tied);
  if (c.window > 0) options.arch.layers = 4;
  options.window = c.window;
  options.dtype = c.dtype;
  options.micro_batches = c.micro_batches;
  options.mask_every = 7;
  options.blank_steps = {kBlank};
  options.where = c.where;
  options.order = c.order;
  // Not columns of their own: IdentityOfWays has them.
  options.keep = c.clipped ? Keep::all : Keep::input;
  options.pool = c.tied ? usual_pool() : PoolKind::plain;
  options.threads = static_cast<int>(c.micro_batches);
  options.policy.schedule = Schedule::delayed;
  options.policy.warmup_steps = kWarmup;
  options.prediction = c.predict ? 1.5f : 0;
  options.clip = c.clipped ? 0.5 : 0;
  if (c.overflow) {
    options.policy.loss_scale = testing::tight_loss_scale(c.dtype);
    options.lone_target_steps = kOverflows;
  } else if (c.dtype == DType::f16) {
    options.policy.loss_scale = {.initial_scale_power = 8, .window = 5};  // grows three times
  }
  return options;
}

/// That the run was what the case says: otherwise equality proves less than its name.
void expect_eventful(const Case& c, const Outcome& outcome) {
  std::set<int64_t> skipped;
  bool clipped = false, predicted = false;
  for (const Decision& d : outcome.decisions) {
    if (d.skipped) skipped.insert(d.step);
    clipped |= d.clip_coef < 1;
    predicted |= d.prediction > 0;
  }
  std::set<int64_t> expected{kBlank};
  if (c.overflow) expected.insert(kOverflows.begin(), kOverflows.end());
  EXPECT_EQ(skipped, expected);
  EXPECT_EQ(clipped, c.clipped);
  EXPECT_EQ(predicted, c.predict);
  // Overflow 5 is known from step 7 on, 6 from 8 on (until 10), 14 from 16 on (until 18).
  const std::vector<int> with{0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1},
      without{0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(outcome.lags, c.overflow ? with : without);
  // The last step knows 18 finite ones.
  if (c.dtype == DType::f16 && !c.overflow) {
    EXPECT_EQ(outcome.decisions.back().loss_scale, 0x1p11);
  }
}

class DelayedEngine : public ::testing::TestWithParam<Case> {};

/// Also stopped in between, where two versions are alive.
TEST_P(DelayedEngine, EqualsASerialLoopThatSharesNoCode) {
  const EngineOptions options = options_of(GetParam());
  testing::EngineRig rig(options);
  rig.run(kStop);
  EXPECT_EQ(testing::difference(rig.outcome(), testing::run_serial(options, kStop)), "");
  rig.run(kSteps - kStop);
  const Outcome outcome = rig.outcome();
  EXPECT_TRUE(outcome.planes.contains(Plane::lagged));
  EXPECT_EQ(outcome.planes.contains(Plane::predicted), GetParam().predict);
  EXPECT_EQ(testing::difference(outcome, testing::run_serial(options, kSteps)), "");
  expect_eventful(GetParam(), outcome);
}

INSTANTIATE_TEST_SUITE_P(Cases, DelayedEngine, ::testing::ValuesIn(kCases), [](const auto& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}micro{}{}{}{}", name_of(c.dtype), c.micro_batches, c.predict ? "_predict" : "",
                     c.clipped ? "_clip" : "", c.overflow ? "_overflow" : "", c.tied ? "_tied" : "");
});

/// What the table leaves out.
TEST(Delayed, EqualsTheSerialLoopInItsCorners) {
  const EngineOptions plain = options_of({DType::f16, 2, Where::mixed, kLayer, true, false, true, true, 0});
  const std::pair<const char*, std::function<void(EngineOptions&)>> corners[] = {
      {"no warm-up", [](EngineOptions& o) { o.policy.warmup_steps = 0; }},
      {"a warm-up of one step", [](EngineOptions& o) { o.policy.warmup_steps = 1; }},
      {"L2", [](EngineOptions& o) { o.adam.decoupled = false; }},
      {"no decay", [](EngineOptions& o) { o.adam.weight_decay = 0; }},
      {"decay of some",
       [](EngineOptions& o) {
         o.no_decay = {"*mlp*", "lm_head*"};
       }},
      {"sizes that no vector divides", [](EngineOptions& o) { o.micro_batch = 3, o.length = 13; }},
      {"overflows from the start",
       [](EngineOptions& o) {
         o.lone_target_steps = {0, 1, 3, 4};
       }},
      {"overflow after overflow", [](EngineOptions& o) { o.lone_target_steps = {4, 5, 6, 7, 8, 9, 10, 11}; }},
  };
  for (const auto& [name, corner] : corners) {
    EngineOptions options = plain;
    corner(options);
    EXPECT_EQ(testing::difference(testing::run_engine(options, kStop), testing::run_serial(options, kStop)),
              "")
        << name;
  }
}

/// Learning that is much too fast for a while lifts the loss: lag 0 until its mean has come down again.
TEST(Delayed, EqualsTheSerialLoopWithAStalenessLimit) {
  for (const Where where : {Where::host, Where::mixed}) {
    EngineOptions options = testing::rising_loss();
    options.where = where;
    const Outcome outcome = testing::run_engine(options, 48);
    EXPECT_EQ(testing::difference(outcome, testing::run_serial(options, 48)), "");
    std::string lags;
    for (const int lag : outcome.lags) lags += static_cast<char>('0' + lag);
    EXPECT_NE(lags.substr(20).find("10"), lags.npos) << lags << ": the limit was never passed";
    EXPECT_EQ(lags.substr(0, 20), "00011111111111111111");
  }
}

/// The twins: a loop with one mistake planted is not the engine.
class DelayedTwin : public ::testing::TestWithParam<std::pair<SerialFault, const char*>> {};

TEST_P(DelayedTwin, IsNoticed) {
  EngineOptions options = options_of({DType::f16, 1, Where::host, kLayer, true, false, true, true, 0});
  EXPECT_NE(testing::difference(testing::run_engine(options, kSteps),
                                testing::run_serial(options, kSteps, GetParam().first), {Plane::master}),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    NoticesWhen, DelayedTwin,
    ::testing::Values(std::pair{SerialFault::reads_one_later, "TheLoopReadsOneVersionLater"},
                      std::pair{SerialFault::lease_ends_early, "TheLeaseEndsEarly"},
                      std::pair{SerialFault::predicts_everything, "ReadersAtLagZeroGetPredictions"},
                      std::pair{SerialFault::predicts_skips, "ASkipKeepsThePrediction"},
                      std::pair{SerialFault::scales_fall_twice, "LateNewsLowersTheScaleAgain"},
                      std::pair{SerialFault::warm_up_starts_late, "TheNewWarmUpStartsLate"},
                      std::pair{SerialFault::norm_before_rounding, "TheNormIsOfUnroundedSums"}),
    [](const auto& info) { return info.param.second; });

}  // namespace
}  // namespace tandem
