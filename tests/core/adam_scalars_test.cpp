#include <gtest/gtest.h>

#include <cmath>

#include "core/math/adam_formula.h"

namespace tandem {
namespace {

TEST(NumbersAdamScalars, PowerMatchesLongDouble) {
  for (const double base : {0.9, 0.95, 0.999, 0.9999, 1.0, 0.5})
    for (const int64_t exponent : {0, 1, 2, 3, 10, 63, 64, 1000, 12345}) {
      const long double wanted = std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
      // Repeated squaring doubles the relative error at each level and adds a rounding: at most 2 * exponent
      // halves.
      EXPECT_NEAR(power(base, exponent), static_cast<double>(wanted),
                  static_cast<double>(wanted) * static_cast<double>(2 * exponent + 1) * 0x1p-53)
          << base << "^" << exponent;
    }
  EXPECT_EQ(power(0.5, 10), 0x1p-10);
  EXPECT_EQ(power(0.9, int64_t{1} << 40), 0.0);  // underflows, without a loop over the exponent
}

/// `got` is `wanted` rounded to float, or its neighbour where `wanted` lies close to a tie.
void expect_rounded(float got, long double wanted, const char* name) {
  const long double gap = std::nextafter(std::fabs(got), INFINITY) - std::fabs(got);
  EXPECT_LE(std::fabs(static_cast<long double>(got) - wanted), 0.5001L * gap) << name;
}

TEST(NumbersAdamScalars, AreTheFormulasRoundedOnce) {
  const AdamHyper h{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
  for (const int64_t t : {1, 2, 7, 100, 5000, 3000000}) {
    const double lr = 3e-4, clip = 0.37, loss_scale = 4096;
    const AdamScalars s = adam_scalars(h, lr, t, clip, loss_scale);
    const long double b1 = h.beta1, b2 = h.beta2;
    expect_rounded(s.grad_scale, 0.37 / 4096.0L, "s");
    expect_rounded(s.beta1, b1, "b1");
    expect_rounded(s.omb1, 1 - b1, "1 - b1");
    expect_rounded(s.beta2, b2, "b2");
    expect_rounded(s.omb2, 1 - b2, "1 - b2");
    expect_rounded(s.inv_sqrt_bias2, 1 / std::sqrt(1 - std::pow(b2, static_cast<long double>(t))), "isq");
    expect_rounded(s.eps, h.eps, "eps");
    expect_rounded(s.weight_decay, h.weight_decay, "wd");
    expect_rounded(s.neg_lr_decay, -static_cast<long double>(lr) * h.weight_decay, "-lr wd");
    expect_rounded(s.neg_step, -lr / (1 - std::pow(b1, static_cast<long double>(t))), "-a");
  }
}

}  // namespace
}  // namespace tandem
