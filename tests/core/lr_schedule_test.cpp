#include "core/run/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

// A handful of double operations and one libm call of each side: 16 ulps cover them.
constexpr double kRelative = 16 * 2.220446049250313e-16;

ScheduleConfig schedule(ScheduleType type, int64_t warmup, int64_t total = 100) {
  return {
      .type = type, .lr = 1e-3, .warmup_steps = warmup, .min_lr = 0, .max_lr = 1e-3, .total_steps = total};
}

void expect_near(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value, expected, std::fabs(expected) * kRelative) << what;
}

TEST(NumbersSchedule, ConstantIsConstant) {
  for (const int64_t n : {0, 1, 99, 100, 1'000'000})
    EXPECT_EQ(lr_at(schedule(ScheduleType::constant, 10), n), 1e-3);
}

TEST(NumbersSchedule, HandCheckedValues) {
  ScheduleConfig s = schedule(ScheduleType::warmup, 4);
  s.warmup_type = WarmupType::linear;
  s.min_lr = 1e-4;
  const double linear[] = {1e-4 + 9e-4 * 0.25, 1e-4 + 9e-4 * 0.5, 1e-4 + 9e-4 * 0.75, 1e-3, 1e-3, 1e-3};
  for (int64_t n = 0; n < 6; ++n) expect_near(lr_at(s, n), linear[n], std::to_string(n));

  // log base 8 of 2, 3, 4, ... reaches 1 at n = 6, two steps before the warm-up ends.
  s = schedule(ScheduleType::warmup, 8);
  const double log8[] = {
      1.0 / 3, 0.5283208335737187, 2.0 / 3, 0.7739760316291208, 0.8616541669070521, 0.9357849740192015, 1, 1,
      1};
  for (int64_t n = 0; n < 9; ++n) EXPECT_NEAR(lr_at(s, n), 1e-3 * log8[n], 1e-17) << n;

  s = schedule(ScheduleType::warmup_decay, 20, 100);
  expect_near(lr_at(s, 20), 1e-3, "decay starts at the peak");
  expect_near(lr_at(s, 40), 0.75e-3, "a quarter of the way");
  expect_near(lr_at(s, 99), 1e-3 / 80, "the last step");
  EXPECT_EQ(lr_at(s, 100), 0.0);
  EXPECT_EQ(lr_at(s, 5000), 0.0);

  s = schedule(ScheduleType::warmup_cosine, 20, 100);
  s.cos_min_ratio = 0.1;
  expect_near(lr_at(s, 20), 1e-3, "cosine starts at the peak");
  expect_near(lr_at(s, 60), 0.55e-3, "half way: (1 + 0.1)/2");
  EXPECT_NEAR(lr_at(s, 40), 1e-3 * (0.1 + 0.9 * 0.8535533905932737), 1e-17) << "cos 45 degrees";
  expect_near(lr_at(s, 100), 1e-4, "the floor");
  expect_near(lr_at(s, 1000), 1e-4, "stays there");
  s.warmup_min_ratio = 0.2;
  s.warmup_type = WarmupType::linear;
  expect_near(lr_at(s, 0), 1e-3 * (0.2 + 0.8 / 20), "cosine's warm-up starts above its ratio");
  expect_near(lr_at(s, 19), 1e-3, "and ends at 1");
}

// The documented formulas, arranged otherwise: interpolation as a weighted sum, log base W, half-angle
// cosine.
double reference(const ScheduleConfig& s, int64_t n) {
  const double done = static_cast<double>(n), w = static_cast<double>(s.warmup_steps),
               total = static_cast<double>(s.total_steps);
  double factor = 1;
  if (n < s.warmup_steps && s.warmup_steps > 1)
    factor = s.warmup_type == WarmupType::linear ? std::fmin(1, (1 + done) / w)
                                                 : std::fmin(1, std::log2(done + 2) / std::log2(w));
  if (s.type == ScheduleType::warmup_cosine) {
    if (n < s.warmup_steps) return s.lr * (s.warmup_min_ratio * (1 - factor) + factor);
    const double cosine = n >= s.total_steps ? 0 : std::cos(M_PI / 2 * (done - w) / (total - w));
    return s.lr * (s.cos_min_ratio * (1 - cosine * cosine) + cosine * cosine);
  }
  if (s.type == ScheduleType::warmup_decay && n >= s.warmup_steps)
    factor = n >= s.total_steps ? 0 : (total - done) / (total - w);
  return s.max_lr * factor + s.min_lr * (1 - factor);
}

TEST(NumbersSchedule, EqualsTheFormulasInAnotherArrangement) {
  for (const auto type : {ScheduleType::warmup, ScheduleType::warmup_decay, ScheduleType::warmup_cosine})
    for (const auto warmup_type : {WarmupType::log, WarmupType::linear})
      for (const int64_t warmup : {0, 1, 2, 3, 10, 49, 50, 51, 1000})
        for (const int64_t total : {1, 2, 50}) {
          ScheduleConfig s = schedule(type, warmup, total);
          s.warmup_type = warmup_type;
          s.min_lr = 2e-5;
          s.cos_min_ratio = 0.05;
          s.warmup_min_ratio = 0.01;
          for (int64_t n = 0; n < 60; ++n) {
            ASSERT_TRUE(std::isfinite(lr_at(s, n)));
            // The half-angle form loses up to an ulp of 1 in cosine^2, relative to the peak.
            ASSERT_NEAR(lr_at(s, n), reference(s, n), 1e-3 * kRelative)
                << "W " << warmup << " N " << total << " n " << n << " type " << static_cast<int>(type);
          }
        }
}

TEST(NumbersSchedule, FirstLearningRateIsAboveZero) {
  for (const auto type : {ScheduleType::warmup, ScheduleType::warmup_decay, ScheduleType::warmup_cosine})
    for (const auto warmup_type : {WarmupType::log, WarmupType::linear})
      for (const int64_t warmup : {0, 1, 2, 99, 100, 101, 1000}) {
        ScheduleConfig s = schedule(type, warmup, 100);
        s.warmup_type = warmup_type;
        EXPECT_GT(lr_at(s, 0), 0.0) << warmup;
        EXPECT_LE(lr_at(s, 0), 1e-3) << warmup;
        if (warmup <= 1) {
          EXPECT_EQ(lr_at(s, 0), 1e-3) << "no warm-up";
        }
      }
}

}  // namespace
}  // namespace tandem
