#include "core/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

/// The nearest of all 65536 values of a 16-bit type by exhaustive neighbours, ties to even mantissa: an
/// independent reference.
template <class T>
T nearest_even_reference(float x) {
  T best{};
  double best_error = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const T candidate{static_cast<uint16_t>(bits)};
    if (non_finite(candidate) || ((bits >> 15) != 0) != std::signbit(x)) continue;
    const double error = std::fabs(static_cast<double>(to_float(candidate)) - static_cast<double>(x));
    if (error < best_error || (error == best_error && (bits & 1) == 0)) {
      best = candidate;
      best_error = error;
    }
  }
  return best;
}

TEST(Numbers, SixteenBitRoundTripsAreExact) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bf16 b{static_cast<uint16_t>(bits)};
    const f16 h{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(b))) {
      EXPECT_EQ(to_bf16(to_float(b)).bits, bits);
      EXPECT_EQ(to_bf16_half_away(to_float(b)).bits, bits);
    }
    if (!std::isnan(to_float(h))) {
      EXPECT_EQ(to_f16(to_float(h)).bits, bits);
    }
  }
}

TEST(Numbers, RoundsToTheNearestAndTiesToEven) {
  uint32_t state = 12345;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x =
        std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -static_cast<int>(state % 60) - 1);
    EXPECT_EQ(to_bf16(x).bits, nearest_even_reference<bf16>(x).bits) << x;
    if (std::fabs(x) < 65504.0f) {
      EXPECT_EQ(to_f16(x).bits, nearest_even_reference<f16>(x).bits) << x;
    }
  }
  EXPECT_EQ(to_bf16(bits_float(0x3F808000u)).bits, 0x3F80u);            // tie, even below
  EXPECT_EQ(to_bf16_half_away(bits_float(0x3F808000u)).bits, 0x3F81u);  // the same tie, away from zero
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7C00u);
  EXPECT_EQ(to_f16(65519.0f).bits, 0x7BFFu);
  EXPECT_EQ(to_f16(1e-8f).bits, 0u);
  EXPECT_EQ(to_float(to_bf16(0.999f)), 1.0f);
}

TEST(Numbers, NonFiniteIsSeenInExponentBits) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(non_finite(infinity) && non_finite(-infinity) && non_finite(std::nanf("")));
  EXPECT_FALSE(non_finite(std::numeric_limits<float>::max()));
  EXPECT_TRUE(non_finite(to_bf16(infinity)) && non_finite(to_bf16(std::nanf(""))) &&
              non_finite(to_f16(std::nanf(""))));
  EXPECT_FALSE(non_finite(to_f16(65504.0f)));
}

}  // namespace
}  // namespace tandem
