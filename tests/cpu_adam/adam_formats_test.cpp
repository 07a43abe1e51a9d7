#include <gtest/gtest.h>

#include "adam_cases.h"

// Trajectories of the state formats against double precision, through the pass on every ISA of this CPU, and
// what their rounding is for.

namespace tandem {
namespace {

constexpr int64_t kElements = 256;
constexpr AdamHyper kHyper{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0};

float uniform(int64_t i, uint64_t stream) {  // in [-1, 1)
  return static_cast<float>(philox(7, static_cast<uint64_t>(i), stream).x[0] >> 8) * 0x1p-23f - 1.0f;
}

/// States in a format, stepped with fp32 gradients that stay where they are.
class Stepper {
 public:
  Stepper(Isa isa, StateFormat format)
      : isa_(isa), planes_(kElements, 0, {DType::f32, DType::bf16, Decay::none, 0, format}) {}
  void start(int64_t i, float p) {
    set_master(planes_, i, p, kUlp8Nearest, planes_.at<uint16_t>(planes_.upper, i));
    set_zero(i);
  }
  void gradient(int64_t i, float g) { put(planes_.grad_at(i), DType::f32, g); }
  void step(double lr, uint32_t t, const AdamHyper& h = kHyper) {
    AdamSpans spans = planes_.spans(false);
    if (planes_.beside()) spans.weight_out = spans.upper_out = spans.upper_in;
    adam(*workers_, isa_, spans, Decay::none, adam_scalars(h, lr, t, 1.0, 1.0), 0.0f, {{11, 1, t}, 0});
  }
  [[nodiscard]] float p(int64_t i) { return master_of(planes_, i); }
  [[nodiscard]] float m(int64_t i) { return moment1_of(planes_, i); }
  [[nodiscard]] float v(int64_t i) { return moment2_of(planes_, i); }
  [[nodiscard]] Planes& planes() { return planes_; }

 private:
  void set_zero(int64_t i) {
    const auto zero = [&](StatePlane plane, PlaneBytes& bytes, int64_t at) {
      const size_t size = shape_of(planes_.format, plane).bytes;
      std::fill_n(bytes.begin() + at * static_cast<int64_t>(size), size, std::byte{0});
    };
    zero(StatePlane::moment1, planes_.moment1, i);
    zero(StatePlane::moment2, planes_.moment2, i);
    zero(StatePlane::scale1, planes_.scale1, i / 32);
    zero(StatePlane::scale2, planes_.scale2, i / 32);
  }
  Isa isa_;
  Planes planes_;
  std::unique_ptr<Workers> workers_ = make_workers(PoolKind::plain, 1);
};

/// The distance in L2 after 1000 steps in double (Kingma & Ba 2015): travelled, from 0, and of a format from
/// it.
struct Distances {
  double way, norm, off;
};
Distances distances(Isa isa, StateFormat format) {
  Stepper run(isa, format);
  std::vector<double> start, p, m(kElements), v(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    run.start(i, to_float(to_bf16(uniform(i, 1))));
    start.push_back(run.p(i));
  }
  p = start;
  for (uint32_t t = 1; t <= 1000; ++t) {
    const double lr = 1e-3 * (1001 - t) / 1000;
    for (int64_t i = 0; i < kElements; ++i) {
      // Gradients of one element are alike in size, those of its neighbours up to a hundred times larger.
      const float size = std::pow(10.0f, uniform(i, 2));
      const float g = size * (uniform(i, 10 + t) + 0.3f * uniform(i, 3));
      run.gradient(i, g);
      const auto k = static_cast<size_t>(i);
      m[k] = 0.9 * m[k] + 0.1 * g;
      v[k] = 0.95 * v[k] + 0.05 * static_cast<double>(g) * g;
      p[k] -= lr * (m[k] / (1 - std::pow(0.9, t))) / (std::sqrt(v[k] / (1 - std::pow(0.95, t))) + 1e-8);
    }
    run.step(lr, t);
  }
  Distances d{};
  for (int64_t i = 0; i < kElements; ++i) {
    const auto k = static_cast<size_t>(i);
    d.off += (run.p(i) - p[k]) * (run.p(i) - p[k]);
    d.way += (p[k] - start[k]) * (p[k] - start[k]);
    d.norm += p[k] * p[k];
  }
  return {std::sqrt(d.way), std::sqrt(d.norm), std::sqrt(d.off)};
}

TEST(NumbersAdamFormats, AThousandStepsStayNearTheDoubleTrajectory) {
  const double steps = std::sqrt(1000.0);  // independent roundings add as the root of their number
  // A master's rounding, relative to p: half an ulp; half a step of the 8-bit grid at most (on average).
  const double masters[] = {0.5 * 0x1p-23, 0.5 * 0x1p-23, 0.5 * 0x1p-15};
  // Moments, relative to the way. bf16: a rounding of half a step, 2^-8, of m moves p for 10 steps
  // (1/(1-beta1)), one of v for 20, by half as much; the way is a mean of updates and the noise their root
  // mean square, about twice it. int8: where a root is a hundredth of its group's largest, a step is up to
  // (1/100 + 1/12) / 64, a seventh of it; it wanders by some of them, and the mean of its reciprocal is off
  // by the square of that, 4 %; as much for the first moment's codes.
  const double bf16_moments = 2 * std::hypot(10, 20 / 2.0) * 0x1p-8 / steps;
  const double moments[] = {1e-6, bf16_moments, 0.08};
  for (const StateFormat format : all_state_formats())
    for (const Isa isa : usable_isas()) {
      const Distances d = distances(isa, format);
      EXPECT_GT(d.way, 0.1 * d.norm);
      EXPECT_LE(d.off, steps * masters[static_cast<size_t>(format.master)] * d.norm +
                           moments[static_cast<size_t>(format.moments)] * d.way)
          << name_of(format) << ", " << name_of(isa) << ": " << d.off / d.way << " of the way";
    }
}

TEST(IdentityAdamFormats, SplitMastersAreTheFp32OnesBitForBit) {
  for (const Isa isa : usable_isas())
    for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8}) {
      Stepper whole(isa, {MasterFormat::fp32, moments}), split(isa, {MasterFormat::split, moments});
      for (int64_t i = 0; i < kElements; ++i) {
        whole.start(i, uniform(i, 1));
        split.start(i, uniform(i, 1));
      }
      for (uint32_t t = 1; t <= 50; ++t) {
        for (int64_t i = 0; i < kElements; ++i) {
          whole.gradient(i, uniform(i, 10 + t));
          split.gradient(i, uniform(i, 10 + t));
        }
        whole.step(1e-3, t);
        split.step(1e-3, t);
      }
      int moved = 0;
      for (int64_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(whole.p(i)), std::bit_cast<uint32_t>(split.p(i)));
        if (split.p(i) != uniform(i, 1)) ++moved;
      }
      EXPECT_GT(moved, kElements / 2);
    }
}

TEST(NumbersAdamFormats, ADriftBelowTheMastersStepIsNotLost) {
  // Under a constant gradient every update is lr: here a fifteenth of ulp8's step below 1, 2^-16. Rounding to
  // nearest would leave every weight at 1. Each rounding has a variance of at most lr * step.
  constexpr double kLr = 1e-6, kSteps = 2000;
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.999, .eps = 0};
  for (const Isa isa : usable_isas())
    for (const StateFormat format : all_state_formats()) {
      if (format.moments != MomentFormat::fp32) continue;
      Stepper run(isa, format);
      double sum = 0;
      for (int64_t i = 0; i < kElements; ++i) run.start(i, 1.0f), run.gradient(i, 0.01f);
      for (uint32_t t = 1; t <= static_cast<uint32_t>(kSteps); ++t) run.step(kLr, t, h);
      for (int64_t i = 0; i < kElements; ++i) sum += run.p(i) - 1.0;
      const double noise = std::sqrt(kSteps * kLr * 0x1p-16 / kElements);
      // fp32 rounds each update of 1e-6 below 1 to a multiple of 2^-24.
      EXPECT_NEAR(sum / kElements, -kSteps * kLr, 5 * noise + kSteps * 0x1p-25) << name_of(format);
    }
}

TEST(NumbersAdamFormats, SecondMomentsDecayHoweverSlowly) {
  // beta2 0.999 takes a thousandth a step: less than half a step of bf16 and of an 8-bit root, so rounding to
  // nearest would keep v forever.
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  for (const Isa isa : usable_isas())
    for (const StateFormat format : all_state_formats()) {
      if (format.master != MasterFormat::fp32) continue;
      Stepper run(isa, format);
      for (int64_t i = 0; i < kElements; ++i)
        run.start(i, 1.0f), run.gradient(i, 0.5f + 0.4f * uniform(i, 1));
      run.step(0, 1, h);
      double before = 0, after = 0;
      for (int64_t i = 0; i < kElements; ++i) before += run.v(i), run.gradient(i, 0);
      for (uint32_t t = 2; t <= 1001; ++t) run.step(0, t, h);
      for (int64_t i = 0; i < kElements; ++i) after += run.v(i);
      // The constant is rounded to 2^-25, and so is its thousandth power to a thousand times that; then 1000
      // roundings. One that moves x by d, less than a step s, has a variance of d (s - d). bf16's step is
      // 2^-7 of v at most. A root's is a 64th of the root and of the scale, which is a 12th of the largest
      // and so 9/12 of the smallest here; its square is larger by its variance. The sum over the 256 elements
      // is a sixteenth as wide.
      const double root_step = (1 + 9.0 / 12) / 64, root_variance = 0.0005 * root_step;
      const double one = format.moments == MomentFormat::fp32   ? 0x1p-24
                         : format.moments == MomentFormat::bf16 ? std::sqrt(0.001 * 0x1p-7)
                                                                : 2 * std::sqrt(root_variance);
      const double bias = format.moments == MomentFormat::int8 ? 1000 * root_variance : 0;
      EXPECT_NEAR(after / before, std::pow(0.999, 1000),
                  5 * one * std::sqrt(1000.0) / 16 + bias + 1000 * 0x1p-25)
          << name_of(format) << ", " << name_of(isa);
    }
}

TEST(NumbersAdamFormats, ATinySecondMomentBesideAHugeOneDoesNotVanish) {
  // Were it coded as 0, the update would be m / eps: 1e-6 / 1e-8 = 100 times lr.
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  for (const Isa isa : usable_isas()) {
    Stepper run(isa, {MasterFormat::fp32, MomentFormat::int8});
    for (int64_t i = 0; i < kElements; ++i) run.start(i, 0.0f), run.gradient(i, i % 32 == 0 ? 1e3f : 1e-5f);
    for (uint32_t t = 1; t <= 100; ++t) run.step(1e-3, t, h);
    for (int64_t i = 0; i < kElements; ++i) {
      EXPECT_GT(run.v(i), 0.0f);
      // Coded no smaller than 1/1000 of the group's root: a tiny one moves too little, never too far.
      if (i % 32 != 0) {
        EXPECT_LE(std::fabs(run.p(i)), 100 * 1e-3 * 1.01) << name_of(isa);
      }
    }
  }
}

TEST(NumbersAdamFormats, ZerosStayZerosForAThousandSteps) {
  for (const Isa isa : usable_isas())
    for (const StateFormat format : all_state_formats()) {
      Stepper run(isa, format);
      for (int64_t i = 0; i < kElements; ++i) run.start(i, i % 2 == 0 ? 0.0f : 1.0f), run.gradient(i, 0);
      const Planes before = run.planes();
      for (uint32_t t = 1; t <= 1000; ++t) run.step(1e-3, t);
      run.planes().weight = before.weight;
      EXPECT_TRUE(same_bits(before, run.planes())) << name_of(format) << ", " << name_of(isa);
    }
}

TEST(NumbersAdamFormats, TinyAndHugeGradientsStayFinite) {
  for (const Isa isa : usable_isas())
    for (const StateFormat format : all_state_formats())
      for (const float g : {1e-30f, 1e-40f, 1e20f}) {
        Stepper run(isa, format);
        for (int64_t i = 0; i < kElements; ++i) run.start(i, 0.5f), run.gradient(i, g);
        for (uint32_t t = 1; t <= 1000; ++t) run.step(1e-3, t);
        for (int64_t i = 0; i < kElements; ++i) {
          // 1e20 squares to infinity, which divides; the tiny ones are divided by eps, 1e-8.
          ASSERT_EQ(run.p(i), 0.5f) << name_of(format) << ", " << name_of(isa) << ", gradient " << g;
          ASSERT_FALSE(std::isnan(run.m(i)) || std::isnan(run.v(i)));
        }
      }
}

/// The loss that Adam reaches on a quadratic with masters on ulp8's grid, rounded by the given word of
/// (element, step); without one: in fp32.
template <class Word>
double quadratic_loss(bool on_grid, const Word& word) {
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  constexpr int64_t n = 64;
  std::vector<float> p(n), m(n), v(n);
  for (int64_t i = 0; i < n; ++i) p[static_cast<size_t>(i)] = 0.75f + 0.2f * uniform(i, 1);
  std::vector<float> target = p;
  for (int64_t i = 0; i < n; ++i) target[static_cast<size_t>(i)] += 0.004f * uniform(i, 2);
  const auto loss = [&] {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += 0.5 * (p[i] - target[i]) * (p[i] - target[i]);
    return sum;
  };
  const double first = loss();
  for (uint32_t t = 1; t <= 4000; ++t) {
    const AdamConstants<float> constants(adam_scalars(h, 2e-6, t, 1.0, 1.0));
    for (size_t i = 0; i < n; ++i) {
      adam_update<Decay::none>(p[i], m[i], v[i], p[i] - target[i], constants);
      if (on_grid) p[i] = ulp8_rounded(p[i], word(static_cast<int64_t>(i), t));
    }
  }
  return loss() / first;
}

TEST(NumbersAdamFormats, StochasticMastersTrainWhereNearestOnesStandStill) {
  const auto none = [](int64_t, uint32_t) { return 0u; };
  const auto nearest = [](int64_t, uint32_t) { return kUlp8Nearest; };
  const auto random = [](int64_t i, uint32_t t) { return random_of({{5, 1, t}, 0}, i); };
  const double fp32 = quadratic_loss(false, none), still = quadratic_loss(true, nearest),
               moving = quadratic_loss(true, random);
  RecordProperty("fp32", std::to_string(fp32));
  RecordProperty("nearest", std::to_string(still));
  RecordProperty("stochastic", std::to_string(moving));
  EXPECT_LT(fp32, 0.01);
  EXPECT_GT(still, 0.5);
  EXPECT_LT(moving, 0.1);
}

}  // namespace
}  // namespace tandem
