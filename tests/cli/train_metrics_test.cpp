// metrics.jsonl: every documented field, with the meaning that it is documented with.
#include <gtest/gtest.h>
#include <time.h>

#include <cmath>
#include <set>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

double number(const json::Value& line, const char* key) { return *line.find(key)->number(); }
int64_t integer(const json::Value& line, const char* key) { return *line.find(key)->i64(); }

std::vector<std::string> keys_of(const json::Value& object) {
  std::vector<std::string> keys;
  for (const json::Member& member : *object.object()) keys.push_back(member.key);
  return keys;
}

const Keys kDelayed = {{"zero_optimization.offload_optimizer.schedule", "\"delayed\""},
                       {"train.steps", "40"},
                       {"train.eval_every", "10"},
                       {"checkpoint.every", "16"}};

/// One run of 40 steps, lag 1 from step 5 on, 64 tokens a step, 10 samples an epoch.
class NumbersMetrics : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    runs_ = new TinyRuns;
    begin_ = static_cast<double>(time(nullptr));
    ASSERT_EQ(runs_->train("run", kDelayed).status, 0);
    for (json::Value& line : metrics_of(runs_->path("run")))
      (line.find("eval") == nullptr ? steps_ : evaluations_).push_back(std::move(line));
  }
  static void TearDownTestSuite() {
    delete runs_;
    steps_.clear();
    evaluations_.clear();
  }
  static inline TinyRuns* runs_ = nullptr;
  static inline double begin_ = 0;
  static inline std::vector<json::Value> steps_, evaluations_;
};

TEST_F(NumbersMetrics, EveryLineHasEveryField) {
  ASSERT_EQ(steps_.size(), 40u);
  for (const json::Value& line : steps_) {
    const auto keys = keys_of(line);
    const std::set<std::string> there(keys.begin(), keys.end());
    for (const char* key :
         {"step",         "updates",    "epoch",         "time",        "loss",        "tokens",
          "tokens_per_s", "grad_norm",  "clip_coef",     "lr",          "loss_scale",  "skipped",
          "step_ms",      "exposed_ms", "adam_gparam_s", "d2h_bytes",   "h2d_bytes",   "device_peak_bytes",
          "pinned_bytes", "host_bytes", "version_lag",   "grad_cosine", "update_ratio"})
      EXPECT_TRUE(there.contains(key)) << key;
    EXPECT_EQ(keys_of(*line.find("exposed_ms")), (std::vector<std::string>{"d2h", "adam", "h2d", "other"}));
  }
}

TEST_F(NumbersMetrics, CountsAreThoseOfTheRun) {
  double last = begin_;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const json::Value& line = steps_[i];
    const auto step = static_cast<int64_t>(i) + 1;
    EXPECT_EQ(integer(line, "step"), step);
    EXPECT_EQ(integer(line, "updates"), step);
    EXPECT_DOUBLE_EQ(number(line, "epoch"), static_cast<double>(4 * step) / 10);
    EXPECT_EQ(integer(line, "tokens"), 4 * 16);
    EXPECT_EQ(integer(line, "version_lag"), step > 4 ? 1 : 0);
    EXPECT_FALSE(*line.find("skipped")->boolean());
    EXPECT_EQ(number(line, "loss_scale"), 1.0);
    EXPECT_GE(number(line, "time"), last);
    last = number(line, "time");
    // clip = min(1, 1 / (norm + 1e-6)).
    EXPECT_NEAR(number(line, "clip_coef"), std::min(1.0, 1 / (number(line, "grad_norm") + 1e-6)), 1e-12);
    // Warm-up to 1e-2 in 3 steps, then a cosine over the other 37 down to 1e-4 of it.
    const double n = static_cast<double>(i), r = 1e-4;
    const double factor =
        step <= 3 ? (n + 1) / 3 : r + (1 - r) * (1 + std::cos(std::acos(-1.0) * (n - 3) / 37)) / 2;
    EXPECT_NEAR(number(line, "lr"), 1e-2 * factor, 1e-15);
  }
}

/// Each line's are those of the update before it; the first update meets no moments.
TEST_F(NumbersMetrics, StalenessIsThatOfTheUpdateBefore) {
  EXPECT_TRUE(steps_[0].find("update_ratio")->is_null());
  EXPECT_TRUE(steps_[1].find("grad_cosine")->is_null());
  for (size_t i = 1; i < steps_.size(); ++i) {
    EXPECT_GT(number(steps_[i], "update_ratio"), 0) << i;
    EXPECT_LT(number(steps_[i], "update_ratio"), 1) << i;
    if (i < 2) continue;
    EXPECT_GE(number(steps_[i], "grad_cosine"), -1) << i;
    EXPECT_LE(number(steps_[i], "grad_cosine"), 1) << i;
    EXPECT_NE(number(steps_[i], "grad_cosine"), 0) << i;
  }
}

TEST_F(NumbersMetrics, ExposedAndBusyTimeAreTheStep) {
  for (const json::Value& line : steps_) {
    double sum = number(line, "busy_ms");
    for (const json::Member& part : *line.find("exposed_ms")->object()) {
      EXPECT_GE(*part.value.number(), 0) << part.key;
      sum += *part.value.number();
    }
    EXPECT_NEAR(sum, number(line, "step_ms"), 0.02 * number(line, "step_ms")) << integer(line, "step");
    EXPECT_GT(number(line, "busy_ms"), 0);
  }
}

/// Of the last 20 steps that count: without the first one and those that follow a save or an evaluation.
TEST_F(NumbersMetrics, SpeedLeavesOutTheFirstStepSavesAndEvaluations) {
  std::vector<double> counted;
  for (const json::Value& line : steps_) {
    const int64_t before = integer(line, "step") - 1;
    if (before != 0 && before % 10 != 0 && before % 16 != 0) counted.push_back(number(line, "step_ms"));
    const size_t first = counted.size() > 20 ? counted.size() - 20 : 0;
    double ms = 0;
    for (size_t i = first; i < counted.size(); ++i) ms += counted[i];
    const double expected = ms > 0 ? 64e3 * static_cast<double>(counted.size() - first) / ms : 0;
    EXPECT_NEAR(number(line, "tokens_per_s"), expected, 1e-9 * expected) << before + 1;
  }
}

TEST_F(NumbersMetrics, BytesAreThoseOfTheTransfers) {
  // Gradients to the host and weights back, bf16, padded; a few scalars and tokens besides.
  const int64_t planes = 2 * 26784;
  for (const json::Value& line : steps_) {
    EXPECT_GE(integer(line, "d2h_bytes"), planes);
    EXPECT_LE(integer(line, "d2h_bytes"), planes + 2048);
    EXPECT_LE(integer(line, "h2d_bytes"), planes + 2048);
    EXPECT_GT(integer(line, "device_peak_bytes"), planes);
    EXPECT_GT(integer(line, "host_bytes"), 3 * 4 * 26784) << "masters and moments";
    EXPECT_LT(integer(line, "pinned_bytes"), integer(line, "host_bytes"));
    EXPECT_GT(number(line, "adam_gparam_s"), 0);
  }
}

TEST_F(NumbersMetrics, EvaluationsNameTheWeightsThatTheyRead) {
  ASSERT_EQ(evaluations_.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const json::Value& line = evaluations_[i];
    EXPECT_EQ(keys_of(line),
              (std::vector<std::string>{"step", "eval", "eval_loss", "eval_tokens", "eval_version"}));
    const auto step = static_cast<int64_t>(i + 1) * 10;
    EXPECT_EQ(integer(line, "step"), step);
    EXPECT_EQ(integer(line, "eval_tokens"), 7 * 16);
    EXPECT_EQ(integer(line, "eval_version"), step == 40 ? 40 : step - 1) << "the last one reads the masters";
  }
}

TEST_F(NumbersMetrics, TheLastEvaluationIsThatOfTheEvalCommand) {
  for (const auto& [dtype, enabled] : {std::pair("bf16", "true"), std::pair("fp32", "false")}) {
    Keys keys = kDelayed;
    keys["bf16.enabled"] = enabled;
    ASSERT_EQ(runs_->train(dtype, keys).status, 0);
    const double trained = number(metrics_of(runs_->path(dtype)).back(), "eval_loss");
    const Ran ran =
        run_tandem({"eval", runs_->path(std::string(dtype) + ".json"), "--checkpoint", "latest", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json::Value result = json::parse(ran.out, "eval").root;
    EXPECT_NEAR(number(result, "loss"), trained, 1e-6 * trained) << dtype;
    EXPECT_EQ(integer(result, "tokens"), 7 * 16);
    EXPECT_EQ(integer(result, "step"), 40);
  }
}

TEST(NumbersSkipped, StepsCountAndUpdatesDoNot) {
  const TinyRuns runs;
  const Keys keys = {{"bf16.enabled", "false"},
                     {"fp16.enabled", "true"},
                     {"fp16.initial_scale_power", "24"},
                     {"fp16.hysteresis", "1"}};
  const Ran ran = runs.train("run", keys, {"--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  int64_t updates = 0, skipped = 0;
  double scale = std::ldexp(1.0, 24);
  for (const json::Value& line : metrics_of(runs.path("run"))) {
    if (line.find("eval") != nullptr) continue;
    const bool skip = *line.find("skipped")->boolean();
    EXPECT_EQ(number(line, "loss_scale"), scale);
    if (skip) scale /= 2;
    (skip ? skipped : updates) += 1;
    EXPECT_EQ(integer(line, "updates"), updates);
    if (skip) {
      EXPECT_TRUE(line.find("grad_norm")->is_null());
      EXPECT_NE(
          ran.err.find(fmt::format("warning: the gradient of step {} was not finite; the step was skipped",
                                   integer(line, "step"))),
          std::string::npos);
    }
  }
  EXPECT_GE(skipped, 3);
  const json::Value result = json::parse(ran.out, "train").root;
  EXPECT_EQ(integer(result, "skipped"), skipped);
  EXPECT_EQ(integer(result, "updates"), updates);
}

}  // namespace
}  // namespace tandem
