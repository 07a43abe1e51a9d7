// An engine that stops after any step and goes on in a new one, from planes in memory, is the engine that
// never stopped. (Files and signals are the checkpoint tests' matter.)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::Outcome;
using testing::Saved;
using testing::Where;

constexpr int64_t kSteps = 16;

struct Case {
  const char* name;
  DType dtype;
  Schedule schedule;
  Where where;
  float prediction;
  int64_t warmup = 2;
  int window = 0;  ///< of streamed weights; 0: resident
};
constexpr Case kCases[] = {
    {"predict_host_f16", DType::f16, Schedule::delayed, Where::host, 1.5f},
    {"predict_mixed_f16", DType::f16, Schedule::delayed, Where::mixed, 1.5f},
    {"none_device_f16", DType::f16, Schedule::delayed, Where::device, 0},
    {"predict_device_bf16", DType::bf16, Schedule::delayed, Where::device, 1},
    {"predict_host_f16_no_warm_up", DType::f16, Schedule::delayed, Where::host, 1, 0},
    {"none_host_f32", DType::f32, Schedule::delayed, Where::host, 0},
    {"synchronous_mixed_f16", DType::f16, Schedule::synchronous, Where::mixed, 0},
    {"exact_gated_mixed_f16", DType::f16, Schedule::exact, Where::mixed, 0},
    {"exact_early_host_bf16", DType::bf16, Schedule::exact, Where::host, 0},
    {"exact_early_mixed_f32", DType::f32, Schedule::exact, Where::mixed, 0},
    {"streamed_predict_host_f16", DType::f16, Schedule::delayed, Where::host, 1, 2, 2},
    {"streamed_none_mixed_f16", DType::f16, Schedule::delayed, Where::mixed, 0, 0, 2},
    {"streamed_exact_host_bf16", DType::bf16, Schedule::exact, Where::host, 0, 2, 3},
};

EngineOptions options_of(const Case& c) {
  EngineOptions options;
  options.dtype = c.dtype;
  options.where = c.where;
  options.window = c.window;
  options.policy = {c.schedule, c.warmup, {.fixed = 1}};
  options.prediction = c.prediction;
  const bool early = c.schedule == Schedule::exact && c.dtype != DType::f16;
  options.clip = early ? 0 : 0.5;
  options.on_nonfinite = early ? OnNonfinite::stop : OnNonfinite::skip;
  options.blank_steps = {10};
  options.micro_batches = 2;
  if (c.dtype == DType::f16) {  // overflows at lag 0, twice in a row at lag 1, and before a stop
    options.policy.loss_scale = testing::tight_loss_scale(c.dtype);
    options.lone_target_steps = {1, 6, 7, 12};
  }
  return options;
}

class ResumeEngine : public ::testing::TestWithParam<Case> {};

/// The whole run's outcome as a run that begins at `stop` sees it.
Outcome since(int64_t stop, Outcome whole) {
  whole.decisions.erase(whole.decisions.begin(), whole.decisions.begin() + stop);
  whole.lags.erase(whole.lags.begin(), whole.lags.begin() + stop);
  return whole;
}

TEST_P(ResumeEngine, AnyStopEqualsNeverStopped) {
  const EngineOptions options = options_of(GetParam());
  const Outcome whole = testing::run_engine(options, kSteps);
  EngineRig stopping(options);
  for (int64_t stop = 0; stop < kSteps; ++stop) {
    EngineRig resumed(options, stopping.save());
    EXPECT_EQ(testing::difference(resumed.outcome(), stopping.outcome(),
                                  {Plane::master, Plane::exp_avg, Plane::exp_avg_sq, Plane::weights,
                                   Plane::lagged, Plane::predicted}),
              "")
        << "saved again after " << stop;
    resumed.run(kSteps - stop);
    EXPECT_EQ(testing::difference(resumed.outcome(), since(stop, whole)), "") << "stopped after " << stop;
    stopping.run(1);
  }
}

/// Stopped after every step: a chain of engines that each run one.
TEST_P(ResumeEngine, AChainOfStopsEqualsNeverStopped) {
  const EngineOptions options = options_of(GetParam());
  auto rig = std::make_unique<EngineRig>(options);
  for (int64_t step = 0; step < kSteps - 1; ++step) {
    rig->run(1);
    rig = std::make_unique<EngineRig>(options, rig->save());
  }
  rig->run(1);
  EXPECT_EQ(testing::difference(rig->outcome(), since(kSteps - 1, testing::run_engine(options, kSteps))), "");
}

/// Where weights and inputs wait is no part of what is saved: each stretch may have its own way.
TEST_P(ResumeEngine, AChangeOfPlacesEqualsNeverStopped) {
  EngineOptions options = options_of(GetParam());
  const Outcome whole = testing::run_engine(options, kSteps);
  auto rig = std::make_unique<EngineRig>(options);
  for (int64_t step = 0; step < kSteps; ++step) {
    options.window = step % 3 == 0 ? 2 : step % 3 == 1 ? 0 : 3;
    options.keep = step % 2 == 0 ? Keep::input_offloaded : Keep::all;
    rig = std::make_unique<EngineRig>(options, rig->save());
    rig->run(1);
  }
  EXPECT_EQ(testing::difference(rig->outcome(), since(kSteps - 1, whole)), "");
}

INSTANTIATE_TEST_SUITE_P(Cases, ResumeEngine, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

/// Stopped while the staleness limit counts, when it has just been passed, and while it holds.
TEST(ResumeEngineStaleness, AnyStopEqualsNeverStopped) {
  const EngineOptions options = testing::rising_loss();
  constexpr int64_t kLong = 48;
  const Outcome whole = testing::run_engine(options, kLong);
  EngineRig stopping(options);
  int64_t done = 0;
  for (const int64_t stop : {7, 21, 24, 25, 26, 27, 28, 31, 40}) {
    stopping.run(stop - done);
    done = stop;
    EngineRig resumed(options, stopping.save());
    resumed.run(kLong - stop);
    EXPECT_EQ(testing::difference(resumed.outcome(), since(stop, whole)), "") << "stopped after " << stop;
  }
}

/// The twin: without the planes that masters can't give back it is another run.
TEST(ResumeEngineTwin, NoticesWhenAPlaneIsLost) {
  const EngineOptions options = options_of(kCases[0]);
  const Outcome whole = testing::run_engine(options, kSteps);
  EngineRig rig(options);
  rig.run(5);
  for (const Plane lost : {Plane::lagged, Plane::predicted}) {
    Saved saved = rig.save();
    ASSERT_TRUE(saved.planes.contains(lost));
    saved.planes[lost] = saved.planes.at(Plane::weights);
    EngineRig resumed(options, saved);
    resumed.run(kSteps - 5);
    EXPECT_NE(testing::difference(resumed.outcome(), since(5, whole)), "");
  }
}

}  // namespace
}  // namespace tandem
