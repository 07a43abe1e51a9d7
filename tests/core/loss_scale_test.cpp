#include "core/run/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

namespace tandem {
namespace {

/// Tells the scaler of a run of steps: '.' good, 'X' overflow, 'o' overflow of an older scale.
void tell(LossScaler& scaler, std::string_view steps) {
  for (const char step : steps) scaler.update(step != '.', step != 'o');
}

void tell_good(LossScaler& scaler, int count) {
  for (int i = 0; i < count; ++i) scaler.update(false, true);
}

TEST(NumbersLossScale, FollowsTheDocumentedSequences) {
  struct Case {
    const char* why;
    LossScaleConfig config;
    std::string_view steps;
    LossScaleState end;
  };
  const LossScaleConfig defaults;
  const LossScaleConfig window3{.initial_scale_power = 4, .window = 3};
  const LossScaleConfig consecutive{.initial_scale_power = 4, .window = 100, .consecutive_hysteresis = true};
  const Case cases[] = {
      {"at start", defaults, "", {65536, 0, 2}},
      {"the first overflow uses up hysteresis", defaults, "X", {65536, 0, 1}},
      {"the second halves", defaults, "XX", {32768, 0, 1}},
      {"further ones halve at once", defaults, "XXXX", {8192, 0, 1}},
      {"good steps do not restore hysteresis", defaults, "X...X", {32768, 0, 1}},
      {"an overflow restarts the count", defaults, "....X..", {65536, 2, 1}},
      {"growth after exactly the window", window3, "...", {32, 0, 2}},
      {"no growth one step earlier", window3, "..", {16, 2, 2}},
      {"growth again", window3, "......", {64, 0, 2}},
      {"growth restores hysteresis", window3, "X...", {32, 0, 2}},
      {"so the next overflow keeps the scale", window3, "X...X", {32, 0, 1}},
      {"halving, then growth", window3, "XX...", {16, 0, 2}},
      {"consecutive: a good step restores hysteresis", consecutive, "X.X.X.", {16, 1, 2}},
      {"consecutive: two in a row still halve", consecutive, "X.XX", {8, 0, 1}},
      {"late news does not lower again", {.initial_scale_power = 4, .hysteresis = 1}, "Xo", {8, 0, 1}},
      {"late news does not use hysteresis", defaults, "oo", {65536, 0, 2}},
      {"late news restarts the count", window3, "..o..", {16, 2, 2}},
      {"news of the new scale lowers", {.initial_scale_power = 4, .hysteresis = 1}, "XoX", {4, 0, 1}},
      {"permanent overflow ends at the minimum", window3, "XXXXXXXXXXXXXXXX", {1, 0, 1}},
      {"another minimum", {.initial_scale_power = 4, .hysteresis = 1, .min_scale = 3}, "XXXX", {3, 0, 1}},
      {"it recovers from there", window3, "XXXXXXXXXXXXXXXX...", {2, 0, 2}},
      {"a fixed scale", {.fixed = 128}, "XXXX", {128, 0, 2}},
  };
  for (const Case& c : cases) {
    LossScaler scaler(c.config);
    tell(scaler, c.steps);
    EXPECT_EQ(scaler.scale(), c.end.scale) << c.why;
    EXPECT_TRUE(scaler.state() == c.end) << c.why << ": good " << scaler.state().good_steps << ", hysteresis "
                                         << scaler.state().hysteresis_left;
  }
}

TEST(NumbersLossScale, AThousandGoodStepsDouble) {
  LossScaler scaler{LossScaleConfig{}};
  tell_good(scaler, 999);
  EXPECT_EQ(scaler.scale(), 65536);
  tell_good(scaler, 1);
  EXPECT_EQ(scaler.scale(), 131072);
  tell_good(scaler, 500);
  tell(scaler, "XX");
  EXPECT_EQ(scaler.scale(), 65536);
  tell_good(scaler, 999);
  EXPECT_EQ(scaler.scale(), 65536);
  tell_good(scaler, 1);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(NumbersLossScale, StaysAFiniteFloat) {
  LossScaler scaler({.initial_scale_power = 126, .window = 1});
  tell_good(scaler, 5);
  EXPECT_EQ(scaler.scale(), std::ldexp(1.0, 127));
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.scale())));
}

TEST(ResumeLossScale, ContinuesInTheMiddleOfAWindow) {
  const LossScaleConfig config{.window = 5};
  constexpr std::string_view kSteps = "XX..X.o.....XX.........X";
  for (size_t stop = 0; stop <= kSteps.size(); ++stop) {
    LossScaler whole(config), first(config);
    tell(whole, kSteps);
    tell(first, kSteps.substr(0, stop));
    LossScaler second(config, first.state());
    tell(second, kSteps.substr(stop));
    EXPECT_TRUE(second.state() == whole.state()) << stop;
  }
}

}  // namespace
}  // namespace tandem
