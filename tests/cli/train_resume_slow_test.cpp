// Stopped and resumed = never stopped, bit by bit: the program from outside, in every schedule.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

constexpr int64_t kSteps = 14;
constexpr const char* kOffload = "zero_optimization.offload_optimizer.";

struct Case {
  const char* name;
  Keys keys;
};

Keys with(Keys keys, const Keys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

Keys schedule(const std::string& name, const std::string& correction, int warmup) {
  const std::string offload = kOffload;
  return {{offload + "schedule", '"' + name + '"'},
          {offload + "correction", '"' + correction + '"'},
          {offload + "warmup_steps", std::to_string(warmup)},
          {"train.steps", std::to_string(kSteps)}};
}

/// A scale that doubles every two good steps soon passes what fp16 holds, again and again.
const Keys kOverflowing = {{"bf16.enabled", "false"},
                           {"fp16.enabled", "true"},
                           {"fp16.initial_scale_power", "17"},
                           {"fp16.loss_scale_window", "2"},
                           {"fp16.hysteresis", "1"}};

std::vector<Case> cases() {
  return {{"synchronous", schedule("synchronous", "predict", 4)},
          {"exact_gated", schedule("exact", "predict", 4)},
          {"exact_early", with(schedule("exact", "predict", 4),
                               {{"gradient_clipping", "0"}, {"train.on_nonfinite", "\"stop\""}})},
          {"delayed", schedule("delayed", "none", 4)},
          {"predict", schedule("delayed", "predict", 4)},
          {"predict_at_once", schedule("delayed", "predict", 0)},
          {"predict_fp32", with(schedule("delayed", "predict", 2), {{"bf16.enabled", "false"}})},
          {"overflow", with(schedule("synchronous", "predict", 4), kOverflowing)},
          {"overflow_delayed", with(schedule("delayed", "none", 2), kOverflowing)},
          {"overflow_predict", with(schedule("delayed", "predict", 2), kOverflowing)},
          {"on_device", {{"zero_optimization", "{\"stage\": 0}"}, {"train.steps", std::to_string(kSteps)}}}};
}

class ResumeBits : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ASSERT_EQ(runs_.train("whole", GetParam().keys).status, 0); }
  void expect_as_whole(const std::string& name) {
    EXPECT_EQ(computed(runs_.path(name)), computed(runs_.path("whole"))) << name;
    expect_same_checkpoint(checkpoint_path(runs_.path(name), kSteps),
                           checkpoint_path(runs_.path("whole"), kSteps));
    EXPECT_TRUE(litter_in(runs_.path(name)).empty());
  }
  TinyRuns runs_;
};

TEST_P(ResumeBits, AfterAStopAtEveryStepOfOneRun) {
  for (int64_t step = 1; step <= kSteps; ++step) {
    const Ran ran =
        runs_.train("chain", GetParam().keys, {"--resume", "auto", "--max-steps", std::to_string(step)});
    ASSERT_EQ(ran.status, 0) << ran.err;
  }
  expect_as_whole("chain");
}

TEST_P(ResumeBits, AfterOneStopAtAnyStep) {
  for (const int64_t step : {3, 5, 10}) {
    const std::string name = "stop" + std::to_string(step);
    ASSERT_EQ(runs_.train(name, GetParam().keys, {"--max-steps", std::to_string(step)}).status, 0);
    EXPECT_EQ(names_in(runs_.path(name) + "/checkpoints"),
              std::vector<std::string>{fmt::format("step-{:08d}", step)});
    ASSERT_EQ(
        runs_.train(name, GetParam().keys, {"--resume", checkpoint_path(runs_.path(name), step)}).status, 0);
    expect_as_whole(name);
  }
}

TEST_P(ResumeBits, WhateverTheSavesAndEvaluationsWere) {
  const Keys often = {{"checkpoint.every", "1"}, {"train.eval_every", "1"}, {"checkpoint.keep", "99"}};
  const Keys seldom = {{"checkpoint.every", "3"}, {"train.eval_every", "2"}, {"train.eval_tokens", "20"}};
  ASSERT_EQ(runs_.train("often", with(GetParam().keys, often)).status, 0);
  expect_as_whole("often");
  EXPECT_EQ(evaluated(runs_.path("often")).size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(runs_.train("seldom", with(GetParam().keys, seldom)).status, 0);
  expect_as_whole("seldom");

  // Each of the saves is the start of the same run, and of the same evaluations.
  for (const int64_t step : {1, 5, 9}) {
    const std::string name = "from" + std::to_string(step);
    const std::string start = checkpoint_path(runs_.path("often"), step);
    ASSERT_EQ(runs_.train(name, with(GetParam().keys, often), {"--resume", start}).status, 0);
    expect_same_checkpoint(checkpoint_path(runs_.path(name), kSteps),
                           checkpoint_path(runs_.path("whole"), kSteps));
    const auto all = evaluated(runs_.path("often")), some = evaluated(runs_.path(name));
    EXPECT_EQ(some, std::vector<std::string>(all.end() - std::ssize(some), all.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Resume, ResumeBits, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ResumeCases, HoldWhatTheyAreNamedFor) {
  const TinyRuns runs;
  for (const Case& one : cases()) {
    ASSERT_EQ(runs.train(one.name, one.keys).status, 0);
    std::vector<int64_t> lags, skipped;
    for (const json::Value& line : metrics_of(runs.path(one.name))) {
      if (line.find("eval") != nullptr) continue;
      lags.push_back(*line.find("version_lag")->i64());
      if (*line.find("skipped")->boolean()) skipped.push_back(*line.find("step")->i64());
    }
    const std::string name = one.name;
    const bool delayed = name.find("delayed") != name.npos || name.find("predict") != name.npos;
    EXPECT_EQ(std::count(lags.begin(), lags.end(), 1) >= 4, delayed) << name;
    if (name.starts_with("overflow")) {
      ASSERT_GE(skipped.size(), 2u) << name;
      EXPECT_GT(skipped.back(), skipped.front() + 2) << name << ": in the middle, too";
    } else {
      EXPECT_TRUE(skipped.empty()) << name;
    }
    const int64_t switches =
        std::count_if(lags.begin() + 1, lags.end(),
                      [last = lags.front()](int64_t lag) mutable { return std::exchange(last, lag) != lag; });
    EXPECT_EQ(switches >= 3, name.starts_with("overflow_")) << name << ": lag 0, 1, 0, 1";
  }
}

}  // namespace
}  // namespace tandem
