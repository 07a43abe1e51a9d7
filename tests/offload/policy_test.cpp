// Lag and loss scale of every step, from tables worked out by hand from the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "offload/step_policy.h"
#include "tests/offload/golden_weights.h"

namespace tandem {
namespace {

PolicyOptions delayed(int64_t warmup, LossScaleConfig scale = {.initial_scale_power = 16, .hysteresis = 1}) {
  return {Schedule::delayed, warmup, scale};
}

/// A run in which these steps overflow; each step's facts come as late as they may, or as early as they can.
enum class News { late, early };
struct Course {
  std::string lags, powers;  ///< of each step, a digit: lag; log2 of the scale, less ten
};
Course run(const PolicyOptions& options, const std::set<int64_t>& overflows, int64_t steps, News news) {
  StepPolicy policy(options, StepPolicy::initial(options));
  Course course;
  int64_t told = -1;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t until = news == News::early ? step - 1 : policy.waits_for(step);
    while (told < until) {
      ++told;
      policy.decided({told, overflows.contains(told), 1.0, policy.scale(told)});
    }
    EXPECT_TRUE(policy.knows(step));
    EXPECT_EQ(policy.read(step), std::max<int64_t>(0, step - policy.lag(step)));
    course.lags += static_cast<char>('0' + policy.lag(step));
    course.powers += static_cast<char>('0' + std::ilogb(policy.scale(step)) - 10);
  }
  return course;
}

TEST(PlanPolicy, LagsAndScalesAreThoseOfTheRules) {
  struct Case {
    const char* why;
    PolicyOptions options;
    std::set<int64_t> overflows;
    Course expected;
  };
  const LossScaleConfig grows{.initial_scale_power = 12, .window = 3, .hysteresis = 1};
  const Case cases[] = {
      {"no overflow", delayed(3), {}, {"000111111111", "666666666666"}},
      {"no warm-up", delayed(0), {}, {"111111111111", "666666666666"}},
      {"no warm-up after an overflow either", delayed(0), {4}, {"111111111111", "666666555555"}},
      {"in the warm-up: it starts again", delayed(3), {1}, {"000001111111", "665555555555"}},
      {"of the last step of the warm-up", delayed(3), {2}, {"000000111111", "666555555555"}},
      {"of the first step at lag 1: known two steps later",
       delayed(3),
       {3},
       {"000110001111", "666665555555"}},
      {"at lag 1", delayed(3), {5}, {"000111100011", "666666655555"}},
      {"two in a row at lag 1: the second is late news",
       delayed(3),
       {5, 6},
       {"000111100001", "666666655555"}},
      {"a second one with the new scale", delayed(3), {5, 7}, {"000111100001", "666666654444"}},
      {"hysteresis", delayed(2, {.initial_scale_power = 16}), {3, 8}, {"001110011100", "666666666655"}},
      {"growth is known at once at lag 0, late at lag 1",
       delayed(5, grows),
       {},
       {"000001111111", "222333344455"}},
      {"a warm-up of one step", delayed(1), {4}, {"011111011111", "666666555555"}},
      {"synchronous",
       {Schedule::synchronous, 3, {.initial_scale_power = 16, .hysteresis = 1}},
       {3, 4},
       {"000000000000", "666654444444"}},
      {"a fixed scale", delayed(3, {.fixed = 1024}), {5}, {"000111100011", "000000000000"}},
  };
  for (const Case& c : cases)
    for (const News news : {News::late, News::early}) {
      const Course got = run(c.options, c.overflows, 12, news);
      EXPECT_EQ(got.lags, c.expected.lags) << c.why;
      EXPECT_EQ(got.powers, c.expected.powers) << c.why;
    }
}

/// lags 0 0 0 1 1 1 1 0 0: reads 0 1 2 2 3 4 5 7 8.
TEST(PlanPolicy, SaysWhoReadsAVersion) {
  const PolicyOptions options = delayed(3);
  StepPolicy policy(options, StepPolicy::initial(options));
  for (int64_t step = 0; step < 8; ++step) policy.decided({step, step == 5, 1.0, policy.scale(step)});
  std::vector<int64_t> reads;
  for (int64_t step = 1; step < 9; ++step) reads.push_back(policy.read(step));
  EXPECT_EQ(reads, (std::vector<int64_t>{1, 2, 2, 3, 4, 5, 7, 8}));
  EXPECT_TRUE(policy.is_read(2) && policy.is_read(5) && policy.is_read(7));
  EXPECT_FALSE(policy.is_read(6));
  EXPECT_FALSE(policy.read_late_only(2));  // step 2 reads it at lag 0
  EXPECT_TRUE(policy.read_late_only(3) && policy.read_late_only(5));
  EXPECT_FALSE(policy.read_late_only(6) || policy.read_late_only(7));
  EXPECT_EQ(policy.last_reader(1), 1);
  EXPECT_EQ(policy.last_reader(2), 3);
  EXPECT_EQ(policy.last_reader(5), 6);
  EXPECT_EQ(policy.last_reader(7), 7);
}

TEST(PlanPolicy, WaitsForTheLastFactThatItUses) {
  const PolicyOptions options = delayed(2);
  StepPolicy policy(options, StepPolicy::initial(options));
  EXPECT_TRUE(policy.knows(0));
  EXPECT_FALSE(policy.knows(1));
  EXPECT_EQ(policy.waits_for(0), -1);
  EXPECT_EQ(policy.waits_for(1), 0);
  policy.decided({0, false, 1, policy.scale(0)});
  EXPECT_EQ(policy.waits_for(2), 1);
  policy.decided({1, false, 1, policy.scale(1)});
  EXPECT_TRUE(policy.knows(3));  // lag(2) is 1, so lag(3) uses step 1
  EXPECT_EQ(policy.waits_for(3), 1);
  EXPECT_FALSE(policy.knows(4));
  EXPECT_EQ(policy.waits_for(4), 2);
}

/// Every stop of every pattern: the resumed policy goes on as the one that never stopped, and gives the same
/// state for the next checkpoint.
TEST(PlanPolicy, ResumeEqualsNeverStopped) {
  constexpr int64_t kSteps = 14;
  for (uint64_t pattern = 0; pattern < 200; ++pattern) {
    const PolicyOptions options =
        delayed(static_cast<int64_t>(pattern % 4), {.initial_scale_power = 20, .window = 3});
    const auto facts = [&](const StepPolicy& policy, int64_t step) {
      const bool overflow = golden::mix(pattern * 100 + static_cast<uint64_t>(step)) % 4 == 0;
      return StepFacts{step, overflow, static_cast<double>(step), policy.scale(step)};
    };
    StepPolicy whole(options, StepPolicy::initial(options));
    for (int64_t stop = 0; stop <= kSteps; ++stop) {
      if (stop > 0) whole.decided(facts(whole, stop - 1));
      const PolicyState saved = whole.state_before(stop);
      StepPolicy resumed(options, saved), again(options, StepPolicy::initial(options));
      for (int64_t step = 0; step < stop; ++step) again.decided(facts(again, step));
      for (int64_t step = stop; step < stop + 6; ++step) {
        ASSERT_TRUE(resumed.knows(step));
        ASSERT_EQ(resumed.lag(step), again.lag(step)) << pattern << ": " << stop << ", " << step;
        ASSERT_EQ(resumed.scale(step), again.scale(step)) << pattern << ": " << stop << ", " << step;
        const PolicyState a = resumed.state_before(step), b = again.state_before(step);
        ASSERT_EQ(a.step, b.step);
        ASSERT_EQ(a.lag, b.lag);
        ASSERT_EQ(a.since_step, b.since_step) << pattern << ": " << stop << ", " << step;
        ASSERT_EQ(a.zero_until_step, b.zero_until_step);
        ASSERT_TRUE(a.scaler == b.scaler);
        ASSERT_EQ(a.pending.size(), b.pending.size()) << pattern << ": " << stop << ", " << step;
        resumed.decided(facts(resumed, step));
        again.decided(facts(again, step));
      }
    }
  }
}

}  // namespace
}  // namespace tandem
