#include <gtest/gtest.h>

#include "adam_cases.h"

// What a pass adds up on its way.

namespace tandem {
namespace {

constexpr int64_t kElements = 2 * kAdamGrain + 64 * 16 + 33;  // the last sampled block is a short one

float uniform(int64_t i, uint64_t stream) {  // in [-1, 1)
  return static_cast<float>(philox(7, static_cast<uint64_t>(i), stream).x[0] >> 8) * 0x1p-23f - 1.0f;
}

/// Finite states and gradients, as the format holds them.
Planes finite_planes(const AdamCase& c) {
  Planes planes(kElements, 0, c);
  for_groups(kElements, [&](int64_t first, int64_t count) {
    std::vector<float> m, v;
    for (int64_t i = first; i < first + count; ++i) {
      set_master(planes, i, uniform(i, 1), kUlp8Nearest, planes.at<uint16_t>(planes.upper, i));
      put(planes.grad_at(i), planes.grad_type, 8 * uniform(i, 2));
      m.push_back(0.3f * uniform(i, 3) + 0.1f * uniform(i, 2));
      v.push_back(0.01f + 0.01f * uniform(i, 4));
    }
    set_moments(planes, first, m, v, test_place(1 << 20));
  });
  return planes;
}

AdamSums pass(Planes& planes, const AdamCase& c, Isa isa, Workers& workers) {
  AdamSums sums;
  adam(workers, isa, planes.spans(false), c.decay, test_scalars(), c.prediction, test_place(), &sums);
  return sums;
}

TEST(NumbersAdamSums, AreThoseOfEverySixteenthBlock) {
  const AdamCase c{DType::bf16, DType::bf16, Decay::decoupled, 0.0f};
  Planes planes = finite_planes(c), before = planes;
  const auto workers = make_workers(PoolKind::plain, 2);
  const AdamSums sums = pass(planes, c, usable_isas().back(), *workers);
  AdamSums wanted;
  int64_t counted = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    if (i / 64 % 16 != 0) continue;
    ++counted;
    const double g = get(before.grad_at(i), c.grad) * (0.7 / 8.0), m = *before.at(before.moment1, i);
    const double p = *planes.at(planes.master, i), u = p - *before.at(before.master, i);
    wanted += {g * m, g * g, m * m, u * u, p * p};
  }
  EXPECT_EQ(counted, 2 * kAdamGrain / 16 + 64 + 33);
  // Sums of 32 floats in each lane, and of a master's rounding in the update.
  const auto near = [](double got, double want, double share) { EXPECT_NEAR(got, want, share * want); };
  near(sums.grad_squares, wanted.grad_squares, 1e-5);
  near(sums.moment_squares, wanted.moment_squares, 1e-5);
  near(sums.update_squares, wanted.update_squares, 1e-4);
  near(sums.master_squares, wanted.master_squares, 1e-5);
  EXPECT_NEAR(sums.grad_moment, wanted.grad_moment,
              1e-5 * std::sqrt(wanted.grad_squares * wanted.moment_squares));
  EXPECT_GT(sums.grad_moment, 0.1 * std::sqrt(sums.grad_squares * sums.moment_squares));
}

TEST(IdentityAdamSums, AreTheSameOnEveryIsaAndThreadCountAndChangeNoBit) {
  for (const StateFormat format : all_state_formats()) {
    const AdamCase c{DType::bf16, DType::bf16, Decay::decoupled, 1.5f, format};
    const Planes start = finite_planes(c);
    Planes without = start;
    const auto one = make_workers(PoolKind::plain, 1);
    adam(*one, Isa::scalar, without.spans(false), c.decay, test_scalars(), c.prediction, test_place());
    Planes first = start;
    const AdamSums sums = pass(first, c, Isa::scalar, *one);
    EXPECT_TRUE(same_bits(first, without)) << label(c);
    EXPECT_GT(sums.update_squares, 0);
    for (const Isa isa : usable_isas())
      for (const int threads : {1, 3}) {
        Planes again = start;
        const auto workers = make_workers(usual_pool(), threads);
        EXPECT_EQ(pass(again, c, isa, *workers), sums) << label(c) << ", " << name_of(isa);
        EXPECT_TRUE(same_bits(again, first)) << label(c) << ", " << name_of(isa);
      }
  }
}

}  // namespace
}  // namespace tandem
