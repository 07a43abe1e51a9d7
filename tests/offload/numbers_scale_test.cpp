// The fp16 loss scale of every step of a run, by hand: from the rules of core/run/loss_scale.h, from when a
// step knows what happened to which earlier one (offload/step_policy.h), and from two facts about the tiny
// model: a whole batch's gradient overflows at 2^17 and not at 2^16, a lone target's does at 2^16.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

struct Case {
  const char* name;
  Schedule schedule;
  LossScaleConfig scale;
  std::set<int64_t> lone;   ///< steps with one trained target
  std::vector<int> powers;  ///< of the scale, step by step
  std::string_view steps;   ///< 'X': skipped at lag 0, '.': applied at lag 0; 'x' and ',': the same at lag 1
};

testing::EngineOptions options_of(const Case& c) {
  testing::EngineOptions options;
  options.dtype = DType::f16;
  options.policy = {.schedule = c.schedule, .warmup_steps = 2, .loss_scale = c.scale};
  options.lone_target_steps = c.lone;
  return options;
}

const Case kCases[] = {
    // Two overflows until the first halving, one for the next; three good steps double and restore the two.
    {"exact",
     Schedule::exact,
     {.initial_scale_power = 18, .window = 3, .hysteresis = 2},
     {9},
     {18, 18, 17, 16, 16, 16, 17, 17, 16, 16, 15, 15, 15, 16, 16, 16, 17, 17, 16},
     "XXX...XX.X......XX."},
    {"synchronous",
     Schedule::synchronous,
     {.initial_scale_power = 18, .window = 3, .hysteresis = 2},
     {9},
     {18, 18, 17, 16, 16, 16, 17, 17, 16, 16, 15, 15, 15, 16, 16, 16, 17, 17, 16},
     "XXX...XX.X......XX."},
    // Every good step restores the two: the lone targets of 4 and 6 cost nothing, those of 8 and 9 a halving.
    {"consecutive",
     Schedule::exact,
     {.initial_scale_power = 17, .window = 100, .hysteresis = 2, .consecutive_hysteresis = true},
     {4, 6, 8, 9},
     {17, 17, 16, 16, 16, 16, 16, 16, 16, 16, 15, 15},
     "XX..X.X.XX.."},
    // It stays at the least allowed, however often.
    {"least",
     Schedule::exact,
     {.initial_scale_power = 18, .hysteresis = 1, .min_scale = int64_t{1} << 17},
     {},
     {18, 17, 17, 17, 17, 17},
     "XXXXXX"},
    {"fixed", Schedule::exact, {.fixed = 0x1p17}, {}, {17, 17, 17, 17, 17, 17}, "XXXXXX"},
    // Step i at lag 1 behind another such step knows of steps up to i - 2. So the doubling after 0 to 3 shows
    // in 5.
    // 5 and 6 overflow; 7 knows of 5: it halves, and with 8 and 9 is at lag 0, for a warm-up of two behind
    // the news
    // of 6, which come in 8, are of 17 where 16 is current, and lower nothing a second time. Good since: 7 to
    // 10, of
    // which 12 knows; and so on.
    {"delayed",
     Schedule::delayed,
     {.initial_scale_power = 16, .window = 4, .hysteresis = 1},
     {},
     {16, 16, 16, 16, 16, 17, 17, 16, 16, 16, 16, 16, 17, 17, 16, 16},
     "..,,,xx...,,xx.."},
    // The lone target of 4 overflows at 16, but 5 has doubled before that is known, in 6: it takes no
    // hysteresis. 5
    // overflows at 17 and so does 6, at lag 0; 7 hears of both, the one takes hysteresis and the other
    // halves.
    {"delayed_lone",
     Schedule::delayed,
     {.initial_scale_power = 16, .window = 4, .hysteresis = 2},
     {4},
     {16, 16, 16, 16, 16, 17, 17, 16, 16},
     "..,,xxX.."},
};

class NumbersScale : public ::testing::TestWithParam<Case> {};

std::vector<int> powers_of(const testing::Outcome& outcome) {
  std::vector<int> powers;
  for (const Decision& d : outcome.decisions) {
    powers.push_back(static_cast<int>(std::log2(d.loss_scale)));
    EXPECT_EQ(std::exp2(powers.back()), d.loss_scale) << "a power of two";
  }
  return powers;
}

TEST_P(NumbersScale, OfEveryStepIsAsComputedByHand) {
  const Case& c = GetParam();
  const testing::Outcome outcome = testing::run_engine(options_of(c), std::ssize(c.powers));
  std::string steps;
  for (size_t i = 0; i < outcome.decisions.size(); ++i) {
    const bool skipped = outcome.decisions[i].skipped;
    steps += outcome.lags[i] == 0 ? (skipped ? 'X' : '.') : (skipped ? 'x' : ',');
  }
  EXPECT_EQ(powers_of(outcome), c.powers);
  EXPECT_EQ(steps, c.steps);
}

/// The table has teeth: another hysteresis or window is another sequence.
TEST(NumbersScaleTable, NoticesOtherRules) {
  for (Case c : kCases) {
    if (c.scale.fixed > 0 || c.scale.min_scale > 1) continue;
    const auto steps = std::ssize(c.powers);
    ++c.scale.hysteresis;
    EXPECT_NE(powers_of(testing::run_engine(options_of(c), steps)), c.powers) << c.name;
    --c.scale.hysteresis;
    c.scale.window = c.scale.window == 100 ? 2 : c.scale.window + 1;
    EXPECT_NE(powers_of(testing::run_engine(options_of(c), steps)), c.powers) << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, NumbersScale, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem
