// The staleness limit: lags worked out by hand from scripted losses, and that only facts decide, not when
// they come.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "offload/step_policy.h"
#include "tests/offload/golden_weights.h"

namespace tandem {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

PolicyOptions options_of(int64_t warmup, double limit) {
  return {.schedule = Schedule::delayed, .warmup_steps = warmup, .staleness_limit = limit};
}

/// The last step whose facts are told before `step`, which may not use all of them.
using Teller = std::function<int64_t(const StepPolicy&, int64_t step)>;
int64_t late(const StepPolicy& policy, int64_t step) { return policy.waits_for(step); }
int64_t early(const StepPolicy&, int64_t step) { return step - 1; }

/// The lag of every step, a digit each.
std::string lags_of(const PolicyOptions& options, int64_t steps, const std::function<double(int64_t)>& loss,
                    const Teller& until) {
  StepPolicy policy(options, StepPolicy::initial(options));
  std::string lags;
  int64_t told = -1;
  for (int64_t step = 0; step < steps; ++step) {
    for (const int64_t last = until(policy, step); told < last;) {
      ++told;
      policy.decided({told, false, loss(told), 1});
    }
    lags += static_cast<char>('0' + policy.lag(step));
  }
  return lags;
}

std::string digits(std::initializer_list<std::pair<int, char>> runs) {
  std::string text;
  for (const auto& [count, digit] : runs) text += std::string(static_cast<size_t>(count), digit);
  return text;
}

TEST(PlanStaleness, LagsAreThoseOfTheRule) {
  const auto one_at = [](int64_t where, double what) {
    return [=](int64_t step) { return step == where ? what : 1.0; };
  };
  struct Case {
    const char* why;
    PolicyOptions options;
    std::function<double(int64_t)> loss;
    std::string expected;  ///< of 52 steps
  };
  const std::string delayed = digits({{2, '0'}, {50, '1'}});
  const Case cases[] = {
      // The mean is 2 from step 25, known at 27, to step 44, known at 45: two more steps from there.
      {"a loss that lifts the mean by 1", options_of(2, 0.5), one_at(25, 21),
       digits({{2, '0'}, {25, '1'}, {20, '0'}, {5, '1'}})},
      {"by just the limit", options_of(2, 0.5), one_at(25, 11), delayed},
      {"by less", options_of(2, 0.5), one_at(25, 9), delayed},
      {"off", options_of(2, 0), one_at(25, 21), delayed},
      {"no steps to spend at lag 0", options_of(0, 0.5), one_at(25, 21), std::string(52, '1')},
      {"before any mean is known: the first one is high, the later ones are lower", options_of(2, 0.5),
       one_at(5, 21), delayed},
      // Step 44 is the 23rd that counts, known at 46.
      {"losses without a value do not count", options_of(2, 0.5),
       [](int64_t step) {
         if (step % 2 == 1) return kNone;
         return step == 44 ? 21.0 : 1.0;
       },
       digits({{2, '0'}, {44, '1'}, {6, '0'}})},
      {"an infinite one does not either", options_of(2, 0.5), one_at(25, HUGE_VAL), delayed},
      // 20 x 3, then 20 x 1: the lowest mean is 1. Of 3 again five make 1.5, the sixth, step 45, passes it.
      {"above the lowest mean, not the first", options_of(2, 0.5),
       [](int64_t step) { return step < 20 || step >= 40 ? 3.0 : 1.0; },
       digits({{2, '0'}, {45, '1'}, {5, '0'}})},
  };
  for (const Case& c : cases)
    for (const Teller& news : {Teller(late), Teller(early)})
      EXPECT_EQ(lags_of(c.options, 52, c.loss, news), c.expected) << c.why;
}

/// Losses that rise and fall at random, so that the limit is passed now and then.
double random_loss(uint64_t pattern, int64_t step) {
  const double wave = std::sin(static_cast<double>(step) / (3 + static_cast<double>(pattern % 5)));
  const auto noise = static_cast<double>(golden::mix(pattern * 1000 + static_cast<uint64_t>(step)) % 100);
  return noise > 96 ? kNone : 2 + wave + noise / 100;
}

TEST(PlanStaleness, TimingDecidesNothing) {
  int changes = 0;
  for (uint64_t pattern = 0; pattern < 60; ++pattern) {
    const PolicyOptions options = options_of(static_cast<int64_t>(pattern % 7), 0.1);
    const auto loss = [&](int64_t step) { return random_loss(pattern, step); };
    const std::string expected = lags_of(options, 120, loss, late);
    EXPECT_EQ(lags_of(options, 120, loss, early), expected) << pattern;
    const auto sometimes = [&](const StepPolicy& policy, int64_t step) {
      return golden::mix(pattern + 77 * static_cast<uint64_t>(step)) % 2 == 0 ? late(policy, step) : step - 1;
    };
    EXPECT_EQ(lags_of(options, 120, loss, sometimes), expected) << pattern;
    changes += expected.find("10", 30) != expected.npos ? 1 : 0;
  }
  EXPECT_GE(changes, 20) << "the limit must have been passed in many of them";
}

TEST(PlanStaleness, ResumeEqualsNeverStopped) {
  constexpr int64_t kSteps = 80;
  for (uint64_t pattern = 1; pattern < 12; ++pattern) {
    const PolicyOptions options = options_of(static_cast<int64_t>(pattern % 4 + 1), 0.1);
    const auto facts = [&](int64_t step) { return StepFacts{step, false, random_loss(pattern, step), 1}; };
    StepPolicy whole(options, StepPolicy::initial(options));
    std::vector<PolicyState> saved;
    std::string lags;
    for (int64_t step = 0; step < kSteps; ++step) {
      lags += static_cast<char>('0' + whole.lag(step));
      saved.push_back(whole.state_before(step));
      whole.decided(facts(step));
    }
    for (int64_t stop = 0; stop < kSteps; ++stop) {
      StepPolicy resumed(options, saved[static_cast<size_t>(stop)]);
      std::string rest;
      for (int64_t step = stop; step < kSteps; ++step) {
        rest += static_cast<char>('0' + resumed.lag(step));
        EXPECT_EQ(resumed.state_before(step).staleness, saved[static_cast<size_t>(step)].staleness);
        resumed.decided(facts(step));
      }
      ASSERT_EQ(rest, lags.substr(static_cast<size_t>(stop))) << pattern << ": " << stop;
    }
  }
}

TEST(PlanStaleness, RemembersNothingWhereItIsOff) {
  const PolicyOptions off = options_of(2, 0);
  PolicyState state = StepPolicy::initial(off);
  state.staleness = {{1, 2, 3}, 0.5};  // of a run that had it on
  StepPolicy policy(off, state);
  policy.decided({0, false, 1, 1});
  EXPECT_EQ(policy.state_before(1).staleness, StalenessState{});
}

}  // namespace
}  // namespace tandem
