#include "offload/progress.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

TEST(NumbersSpeed, IsThatOfTheLastTwentySteps) {
  SpeedWindow speed;
  EXPECT_EQ(speed.tokens_per_second(), 0);
  EXPECT_EQ(speed.seconds_per_step(), 0);
  for (int64_t step = 0; step < 30; ++step) speed.add(step, 100, step < 10 ? 50.0 : 2.0);
  EXPECT_DOUBLE_EQ(speed.tokens_per_second(), 50);
  EXPECT_DOUBLE_EQ(speed.seconds_per_step(), 2);
  speed.add(30, 100, 22.0);  // 19 steps of 2 s and this one
  EXPECT_DOUBLE_EQ(speed.tokens_per_second(), 2000.0 / 60);
}

TEST(NumbersSpeed, LeavesOutWhatItIsTold) {
  SpeedWindow speed;
  speed.leave_out(0);
  speed.leave_out(2);
  speed.leave_out(3);  // told before the report of step 2 comes
  speed.add(0, 100, 1000);
  EXPECT_EQ(speed.tokens_per_second(), 0);
  for (const auto& [step, seconds] : {std::pair(1, 1.0), {2, 500.0}, {3, 500.0}, {4, 3.0}})
    speed.add(step, 100, seconds);
  EXPECT_DOUBLE_EQ(speed.tokens_per_second(), 50);
}

TEST(NumbersMetricsLine, SaysNullForWhatIsNotFinite) {
  StepReport report;
  report.decision.loss = std::numeric_limits<double>::quiet_NaN();
  report.decision.grad_norm = std::numeric_limits<double>::infinity();
  const json::Value line = metrics_line(report, {});
  EXPECT_TRUE(line.find("loss")->is_null());
  EXPECT_TRUE(line.find("grad_norm")->is_null());
  EXPECT_EQ(*line.find("step"), json::Value(1)) << "steps count from 1 on the outside";
  EXPECT_TRUE(evaluation_line(3, report.decision.grad_norm, 5, 2).find("eval_loss")->is_null());
}

/// By hand: 3 / sqrt(9 * 4) and sqrt(1 / 100).
TEST(NumbersMetricsLine, SaysHowWellTheGradientsFit) {
  StepReport report;
  const auto says = [&](const char* key) { return *metrics_line(report, {}).find(key); };
  EXPECT_TRUE(says("grad_cosine").is_null());
  EXPECT_TRUE(says("update_ratio").is_null());
  report.sums_before = AdamSums{3, 9, 4, 1, 100};
  EXPECT_DOUBLE_EQ(*says("grad_cosine").number(), 0.5);
  EXPECT_DOUBLE_EQ(*says("update_ratio").number(), 0.1);
  report.sums_before->moment_squares = 0;  // the first update has no moment to compare with
  report.sums_before->grad_moment = 0;
  EXPECT_TRUE(says("grad_cosine").is_null());
  EXPECT_DOUBLE_EQ(*says("update_ratio").number(), 0.1);
  report.sums_before = AdamSums{-1.0000001, 1, 1, 0, 1};
  EXPECT_EQ(*says("grad_cosine").number(), -1.0) << "rounded sums";
}

TEST(NumbersMetricsLine, AreAppendedWhole) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", "{}\n");
  MetricsFile file(folder.path("metrics.jsonl"));
  file.write(json::Object{{"step", 1}});
  EXPECT_EQ(folder.read("metrics.jsonl"), "{}\n{\"step\":1}\n");
  file.sync();
}

TEST(NumbersText, IsWrittenForPeople) {
  EXPECT_EQ(duration(7.46), "7.5 s");
  EXPECT_EQ(duration(59.97), "1 min 00 s");
  EXPECT_EQ(duration(130), "2 min 10 s");
  EXPECT_EQ(duration(3900), "1 h 05 min");
  EXPECT_EQ(duration(3599.6), "1 h 00 min");
  EXPECT_EQ(byte_text(1023), "1023 B");
  EXPECT_EQ(byte_text(1536), "1.50 KiB");
  EXPECT_EQ(byte_text(uint64_t{3} << 40), "3.00 TiB");
}

}  // namespace
}  // namespace tandem
