#include <gtest/gtest.h>

#include "adam_cases.h"

// The formula against double precision, through the pass, on every ISA of this CPU. The double code below is
// written from the papers (Kingma & Ba 2015; Loshchilov & Hutter 2019).

namespace tandem {
namespace {

struct DoubleState {
  double p = 0, m = 0, v = 0;
};

/// The constants of one step in double.
struct DoubleScalars {
  double beta1, omb1, beta2, omb2, bias1, bias2, eps, lr, decay;
  /// From the hyper-parameters, never rounded to float.
  static DoubleScalars exact(const AdamHyper& h, double lr, int64_t t) {
    const auto steps = static_cast<double>(t);
    return {h.beta1,
            1 - h.beta1,
            h.beta2,
            1 - h.beta2,
            1 - std::pow(h.beta1, steps),
            1 - std::pow(h.beta2, steps),
            h.eps,
            lr,
            h.weight_decay};
  }
  /// What the pass was given, so that its own arithmetic alone is judged (tests/core/adam_scalars_test judges
  /// these).
  static DoubleScalars given(const AdamScalars& s) {
    const double isq = s.inv_sqrt_bias2;
    return {s.beta1, s.omb1, s.beta2, s.omb2, 1, 1 / (isq * isq), s.eps, -s.neg_step, 0};
  }
};

void double_step(DoubleState& s, double g, const DoubleScalars& c, Decay decay) {
  if (decay == Decay::l2) g += c.decay * s.p;
  s.m = c.beta1 * s.m + c.omb1 * g;
  s.v = c.beta2 * s.v + c.omb2 * g * g;
  if (decay == Decay::decoupled) s.p -= c.lr * c.decay * s.p;
  s.p -= c.lr * (s.m / c.bias1) / (std::sqrt(s.v / c.bias2) + c.eps);
}

/// The gap between floats at the magnitude of x.
double ulp(double x) {
  const auto f = static_cast<float>(std::fabs(x));
  return static_cast<double>(std::nextafter(f, INFINITY)) - static_cast<double>(f);
}

/// A state in fp32 planes with an fp32 gradient, one step on `isa`.
class Stepper {
 public:
  Stepper(Isa isa, int64_t n) : isa_(isa), planes_(n, 0, {}) {}
  [[nodiscard]] float& p(int64_t i) { return *planes_.at(planes_.master, i); }
  [[nodiscard]] float& m(int64_t i) { return *planes_.at(planes_.moment1, i); }
  [[nodiscard]] float& v(int64_t i) { return *planes_.at(planes_.moment2, i); }
  void set(int64_t i, float p0, float m0, float v0, float g) {
    p(i) = p0, m(i) = m0, v(i) = v0;
    gradient(i, g);
  }
  void gradient(int64_t i, float g) { put(planes_.grad_at(i), DType::f32, g); }
  void step(const AdamHyper& h, double lr, int64_t t, Decay decay) {
    adam(*workers_, isa_, planes_.spans(false), decay, adam_scalars(h, lr, t, 1.0, 1.0), 0.0f);
  }

 private:
  Isa isa_;
  Planes planes_;
  std::unique_ptr<Workers> workers_ = make_workers(PoolKind::plain, 1);
};

float uniform(int64_t i, uint64_t stream) {
  return static_cast<float>(philox(7, static_cast<uint64_t>(i), stream).x[0] >> 8) * 0x1p-24f;
}
float normal_like(int64_t i, uint64_t stream) {  // sum of four uniforms: mean 0, variance 1/3
  float sum = -2.0f;
  for (uint64_t k = 0; k < 4; ++k) sum += uniform(i, stream * 4 + k);
  return sum;
}

constexpr int64_t kElements = 20000;

TEST(NumbersAdam, OneStepFromEqualStateIsWithinUlpsOfDouble) {
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
  for (const Isa isa : usable_isas())
    for (const int64_t t : {1, 2, 10, 1000, 1000000}) {
      const auto scalars = DoubleScalars::given(adam_scalars(h, 1e-3, t, 1.0, 1.0));
      Stepper run(isa, kElements);
      std::vector<DoubleState> start(kElements), wanted(kElements);
      for (int64_t i = 0; i < kElements; ++i) {
        // p = 0: then what is stored is the update itself, not rounded at p's magnitude.
        const float p = i % 2 == 0 ? 0.0f : normal_like(i, 1), m = 0.1f * normal_like(i, 2);
        // The second moment never lies far below the square of its gradient, nor of the first moment.
        const float g = normal_like(i, 4), v = m * m + 0.01f * (1 + uniform(i, 30)) * g * g;
        run.set(i, p, m, v, g);
        auto& s = wanted[static_cast<size_t>(i)];
        s = start[static_cast<size_t>(i)] = {p, m, v};
        double_step(s, g, scalars, Decay::none);
      }
      run.step(h, 1e-3, t, Decay::none);
      double worst_m = 0, worst_v = 0, worst_p = 0;
      for (int64_t i = 0; i < kElements; ++i) {
        const DoubleState &s = wanted[static_cast<size_t>(i)], &from = start[static_cast<size_t>(i)];
        // A sum of two terms of opposite sign has the error of its larger term.
        const double largest =
            std::max({std::fabs(0.9 * from.m), std::fabs(s.m - 0.9 * from.m), std::fabs(s.m)});
        worst_m = std::max(worst_m, std::fabs(run.m(i) - s.m) / ulp(largest));
        worst_v = std::max(worst_v, std::fabs(run.v(i) - s.v) / ulp(s.v));
        const double update = s.p - from.p;
        // The update carries the first moment's error where that one's terms cancel.
        const double carried = 4 * ulp(update) * std::max(1.0, largest / std::fabs(s.m));
        const double stored = from.p == 0 ? 0 : 0.5 * ulp(s.p);
        worst_p = std::max(worst_p, std::fabs(run.p(i) - s.p) / (carried + stored));
      }
      EXPECT_LE(worst_m, 1.5) << name_of(isa) << ", t " << t;
      EXPECT_LE(worst_v, 1.5) << name_of(isa) << ", t " << t;
      EXPECT_LE(worst_p, 1.0) << name_of(isa) << ", t " << t << " (in units of 4 ulp of the update)";
    }
}

/// Relative L2 distance of p after `steps` steps from the double trajectory on the same gradients.
double trajectory_error(Isa isa, Decay decay, const AdamHyper& h, int64_t steps) {
  constexpr int64_t n = 257;
  Stepper run(isa, n);
  std::vector<DoubleState> wanted(n);
  for (int64_t i = 0; i < n; ++i) {
    run.set(i, normal_like(i, 1), 0, 0, 0);
    wanted[static_cast<size_t>(i)].p = run.p(i);
  }
  for (int64_t t = 1; t <= steps; ++t) {
    const double lr = 1e-3 * static_cast<double>(steps - t + 1) / static_cast<double>(steps);
    const auto scalars = DoubleScalars::exact(h, lr, t);
    for (int64_t i = 0; i < n; ++i) {
      const float g = normal_like(i, 10 + static_cast<uint64_t>(t)) + 0.2f;
      run.gradient(i, g);
      double_step(wanted[static_cast<size_t>(i)], g, scalars, decay);
    }
    run.step(h, lr, t, decay);
  }
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double p = wanted[static_cast<size_t>(i)].p;
    difference += (run.p(i) - p) * (run.p(i) - p);
    norm += p * p;
  }
  return std::sqrt(difference / norm);
}

TEST(NumbersAdam, AThousandStepsStayOnTheDoubleTrajectory) {
  // p is rounded once a step (decoupled decay: twice), by at most half an ulp <= 2^-24 |p|; independent
  // roundings add as a root of their number, and the update's own few ulps are a thousandth of p's.
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (const Isa isa : usable_isas())
    for (const Decay decay : {Decay::none, Decay::l2, Decay::decoupled})
      EXPECT_LE(trajectory_error(isa, decay, h, 1000), std::sqrt(2000.0) * 0x1p-24)
          << name_of(isa) << ", decay " << static_cast<int>(decay);
}

TEST(NumbersAdam, ZeroGradientsForAThousandStepsMoveNothing) {
  const AdamHyper h;
  for (const Isa isa : usable_isas()) {
    Stepper run(isa, 32);
    for (int64_t i = 0; i < 32; ++i) run.set(i, static_cast<float>(i) - 16, 0, 0, 0);
    for (int64_t t = 1; t <= 1000; ++t) run.step(h, 1e-3, t, Decay::none);
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(run.p(i), static_cast<float>(i) - 16);
      EXPECT_EQ(run.m(i), 0.0f);
      EXPECT_EQ(run.v(i), 0.0f);
    }
  }
}

TEST(NumbersAdam, MomentsDecayThroughDenormalsWithoutNan) {
  const AdamHyper h;
  for (const Isa isa : usable_isas()) {
    Stepper run(isa, 17);
    for (int64_t i = 0; i < 17; ++i) run.set(i, 1, 1e-3f, 1e-6f, 0);
    for (int64_t t = 1; t <= 1000; ++t) run.step(h, 1e-3, t, Decay::none);
    for (int64_t i = 0; i < 17; ++i) {
      // 1e-3 * 0.9^1000 = 1.7e-49 is below the smallest denormal; decay by 0.9 sticks at 5 denormal units
      // (0.9 * 5 = 4.5 rounds to 4, 0.9 * 4 = 3.6 rounds to 4): never flushed to zero.
      EXPECT_EQ(std::bit_cast<uint32_t>(run.m(i)), 4u);
      EXPECT_NEAR(run.v(i), 1e-6 * std::pow(0.999, 1000), 1000 * 1e-6 * 0x1p-24);
      EXPECT_TRUE(std::isfinite(run.p(i)));
      EXPECT_LT(run.p(i), 1.0f);
    }
  }
}

TEST(NumbersAdam, TinyAndHugeGradientsDoWhatFp32Can) {
  const AdamHyper h;
  for (const Isa isa : usable_isas()) {
    Stepper run(isa, 3);
    run.set(0, 0, 0, 0, 1e-30f);  // its square is 0 in fp32, so eps alone divides
    run.set(1, 1, 0, 0, 1e20f);   // its square is infinite, so the weight stays
    run.set(2, 0, 0, 0, 1e-40f);  // a denormal gradient counts
    run.step(h, 1e-3, 1, Decay::none);
    EXPECT_NEAR(run.m(0), 1e-31, 2e-38);
    EXPECT_EQ(run.v(0), 0.0f);
    EXPECT_NEAR(run.p(0) / -(1e-3 * 1e-30 / 1e-8), 1.0, 8 * 0x1p-24);
    EXPECT_EQ(run.v(1), INFINITY);
    EXPECT_EQ(run.p(1), 1.0f);
    // 1e-40 is 71362 denormal units of 2^-149; a tenth of it rounds to 7136.
    EXPECT_EQ(std::bit_cast<uint32_t>(run.m(2)), 7136u);
  }
}

TEST(NumbersAdam, PredictionExtrapolatesTheUpdate) {
  const AdamScalars scalars = test_scalars();
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas()) {
    Planes planes(100, 0, {});
    for (int64_t i = 0; i < 100; ++i) {
      *planes.at(planes.master, i) = normal_like(i, 1);
      *planes.at(planes.moment1, i) = 0.1f * normal_like(i, 2);
      *planes.at(planes.moment2, i) = 0.1f;
      put(planes.grad_at(i), DType::f32, normal_like(i, 3));
    }
    Planes before = planes;
    adam(*workers, isa, planes.spans(false), Decay::decoupled, scalars, 2.0f);
    int moved = 0;
    for (int64_t i = 0; i < 100; ++i) {
      const double p = *planes.at(planes.master, i), old = *before.at(before.master, i);
      const double wanted = p + 2.0 * (p - old);
      // p - old is rounded once, doubled, and the sum rounded once.
      EXPECT_NEAR(get(planes.weight_at(i), DType::f32), wanted, 0.5 * ulp(wanted) + ulp(p - old));
      if (p != old) ++moved;
    }
    EXPECT_GT(moved, 90);
  }
}

TEST(NumbersAdam, AppliesTheGradientScaleBeforeTheMoments) {
  // clip 0.5, loss scale 1024: both powers of two, so the scaled gradient is exact.
  const AdamHyper h{.beta1 = 0.5, .beta2 = 0.75};
  const AdamScalars s = adam_scalars(h, 1e-3, 1, 0.5, 1024.0);
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas()) {
    Planes planes(1, 0, {});
    *planes.at(planes.master, 0) = *planes.at(planes.moment1, 0) = *planes.at(planes.moment2, 0) = 0;
    put(planes.grad_at(0), DType::f32, 4096.0f);  // 4096 * 0.5 / 1024 = 2
    adam(*workers, isa, planes.spans(false), Decay::none, s, 0.0f);
    EXPECT_EQ(*planes.at(planes.moment1, 0), 1.0f);
    EXPECT_EQ(*planes.at(planes.moment2, 0), 1.0f);
  }
}

}  // namespace
}  // namespace tandem
