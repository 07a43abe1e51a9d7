#include "core/math/state_codecs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/dtype.h"
#include "core/math/philox.h"

namespace tandem {
namespace {

float with_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

/// Every upper half beside lower halves at and around the places where roundings change.
template <class Body>
void for_floats(const Body& body) {
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t low :
         {0u, 1u, 0x7Fu, 0x80u, 0x81u, 0xFFu, 0x100u, 0x7FFFu, 0x8000u, 0x8001u, 0xFF80u, 0xFFFFu})
      body(with_bits(upper << 16 | low));
}

/// Sign-extends the low 8 bits.
uint32_t extended(uint32_t code) { return static_cast<uint32_t>(static_cast<int8_t>(code)); }

TEST(NumbersSplitMaster, GivesEveryFloatBack) {
  for_floats([](float p) {
    const uint32_t upper = upper_of(p), low = split_low(p);
    ASSERT_EQ(upper, round_weight<bf16>(p).bits) << bits(p);
    ASSERT_LT(low, 65536u);
    const float again = split_joined<float>(upper, low);
    if (std::isnan(p))
      ASSERT_TRUE(std::isnan(again)) << bits(p);
    else
      ASSERT_EQ(bits(again), bits(p));
  });
}

TEST(NumbersUlp8Master, StaysWithinAStepForEveryRandomWord) {
  for_floats([](float p) {
    if (!std::isfinite(p) || std::fabs(p) >= with_bits(0x7F7FFF00u)) return;
    // A step is 256 units in the last place, those of the smallest normal number below it.
    const double step = 256 * std::ldexp(1.0, std::max(std::ilogb(p == 0 ? 1e-40f : p), -126) - 23);
    for (const uint32_t random : {0u, 0x7Fu, 0x80u, 0xFFu}) {
      const float rounded = ulp8_rounded<float>(p, random << 8 | 0xCDu);
      const uint32_t upper = ulp8_upper(rounded), error = ulp8_error<float>(rounded) & 0xFFu;
      ASSERT_EQ(upper, round_weight<bf16>(rounded).bits) << bits(p);
      ASSERT_EQ(bits(ulp8_joined<float>(upper, extended(error))), bits(rounded)) << bits(p);
      ASSERT_EQ(bits(rounded) & 0xFFu, 0u);
      const double off = std::fabs(static_cast<double>(rounded) - p);
      ASSERT_LT(off, step) << bits(p);
      if (random == 0x80u) {
        ASSERT_LE(off, 0.5 * step) << bits(p);
      }
      if ((bits(p) & 0xFFu) == 0) {
        ASSERT_EQ(bits(rounded), bits(p));
      }
    }
  });
}

TEST(NumbersUlp8Master, ExpectedValueIsTheMasterItself) {
  for (const float p : {1.0f, 1.0000001f, -0.3f, 3.14159f, 1e-30f, 1e-41f, 0.9999999f, -7e20f}) {
    double sum = 0;
    for (uint32_t random = 0; random < 256; ++random) sum += ulp8_rounded<float>(p, random << 8);
    EXPECT_EQ(sum / 256, static_cast<double>(p));  // exact: 256 values of at most 25 bits in double
  }
}

TEST(NumbersUlp8Master, KeepsZerosInfinitiesAndNan) {
  for (const uint32_t random : {0u, 0xFFFFu}) {
    for (const float p : {0.0f, -0.0f, INFINITY, -INFINITY})
      EXPECT_EQ(bits(ulp8_rounded<float>(p, random)), bits(p));
    for (const uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFF80FFFFu}) {
      const float rounded = ulp8_rounded<float>(with_bits(nan), random);
      EXPECT_TRUE(std::isnan(rounded));
      EXPECT_EQ(ulp8_error<float>(rounded) & 0xFFu, 0u);
      EXPECT_TRUE(std::isnan(ulp8_joined<float>(ulp8_upper(rounded), 0)));
    }
  }
}

TEST(NumbersBf16Moment, ExpectedValueIsTheMomentItself) {
  for (const float x : {1.0009766f, -3.3e-5f, 1e-39f, 0.1f, 1.9999999f, -2e30f}) {
    double sum = 0;
    for (uint32_t random = 0; random < 65536; ++random)
      sum += to_float(bf16{static_cast<uint16_t>(moment_bf16<float>(x, random))});
    EXPECT_EQ(sum / 65536, static_cast<double>(x));  // exact: 2^16 values of 8 bits, at most 2 steps apart
  }
}

TEST(NumbersBf16Moment, MeanOverAParameterIsUnbiased) {
  // The mean of a million roundings has a deviation of at most half a step over 1024.
  constexpr int64_t kBlocks = 1 << 14;
  const DrawKey key{3, 14, 15};
  std::vector<uint32_t> random;
  for (int64_t i = 0; i < 64 * kBlocks; ++i) random.push_back(random_bits(key, i));
  for (const float x : {1.001f, -0.0123f}) {
    const double step = std::ldexp(1.0, std::ilogb(x) - 7);
    double off = 0;
    for (const uint32_t bits : random) off += to_float(bf16{static_cast<uint16_t>(moment_bf16(x, bits))}) - x;
    EXPECT_LT(std::fabs(off / (64.0 * kBlocks)), 5 * 0.5 * step / 1024);
  }
}

TEST(NumbersBf16Moment, KeepsWhatItHoldsExactly) {
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t random : {0u, 0x8000u, 0xFFFFu}) {
      const float x = with_bits(upper << 16);
      ASSERT_EQ(moment_bf16<float>(x, random), std::isnan(x) ? 0x7FC0u : upper);
    }
  EXPECT_EQ(moment_bf16<float>(with_bits(0x7FFFFFFFu), 0xFFFFu), 0x7FC0u);
}

/// What one code of int8 counts, from the definition: |x| + c rounded to `mantissa` bits below its exponent.
double step_at(double x, double c, int mantissa) { return std::ldexp(1.0, std::ilogb(x + c) - mantissa); }
float scale_of(uint32_t bits16) { return with_bits(bits16 << 16); }

/// Largest magnitudes over every mantissa of 9 bits, at some exponents.
template <class Body>
void for_largest(const Body& body) {
  for (const int exponent : {-120, -60, -10, 0, 40})
    for (int k = 0; k < 512; ++k) body(std::ldexp(1.0f + static_cast<float>(k) / 512, exponent));
}

TEST(NumbersInt8Scales, LetTheLargestHaveOneOfTheLastCodes) {
  // The room for the sum costs 17/128 of an exponent's codes, rounding the scale up one more, and a step.
  for_largest([](float x) {
    const uint32_t scale1 = group_scale(bits(x), kMoment1Scale), scale2 = group_scale(bits(x), kMoment2Scale);
    for (const uint32_t random : {0u, 0xFFFFu}) {
      const uint32_t code1 = moment1_code(x, coding_base(scale1), random);
      const uint32_t code2 = moment2_code(x, coding_base(scale2), random);
      ASSERT_LE(code1, 127u) << x;
      ASSERT_GE(code1, 127u - 32 * 17 / 128 - 2) << x;
      ASSERT_LE(code2, 255u) << x;
      ASSERT_GE(code2, 255u - 64 * 17 / 128 - 2) << x;
    }
    ASSERT_NEAR(x / scale_of(scale1), 13.7, 1.9);
    ASSERT_NEAR(x / scale_of(scale2), 13.7, 1.9);
  });
}

TEST(NumbersInt8Scales, AreZeroForZerosAndNanForWhatHasNoCode) {
  EXPECT_EQ(group_scale(0, kMoment1Scale), 0u);
  EXPECT_EQ(group_scale(0, kMoment2Scale), 0u);
  for (const float tiny : {0x1p-149f, 1e-40f, 0x1p-126f}) {
    EXPECT_EQ(scale_of(group_scale(bits(tiny), kMoment1Scale)), 0x1p-126f);
    EXPECT_EQ(scale_of(group_scale(bits(tiny), kMoment2Scale)), 0x1p-126f);
  }
  EXPECT_EQ(group_scale(bits(with_bits(0x7E7FFFFFu)), kMoment1Scale) < kScaleOfNan, true);
  for (const float bad : {0x1p126f, INFINITY, NAN})
    EXPECT_EQ(group_scale(bits(bad) & 0x7FFFFFFFu, kMoment1Scale), kScaleOfNan);
  for (const float bad : {NAN, -NAN}) EXPECT_EQ(group_scale(bits(bad), kMoment2Scale), kScaleOfNan);
  EXPECT_EQ(coding_base(kScaleOfNan), 0u);
}

TEST(NumbersInt8FirstMoment, IsWithinAStepAndRightOnAverage) {
  for (const float largest : {1e-30f, 1e-12f, 0.3f, 1.0f, 1.9f, 1e18f}) {
    const uint32_t base = coding_base(group_scale(bits(largest), kMoment1Scale));
    const float c = with_bits(base);
    for (int k = -500; k <= 500; ++k) {
      const float m = largest * (static_cast<float>(k) / 500);
      const double step = step_at(std::fabs(m), c, 5);
      double sum = 0;
      for (uint32_t random = 0; random < 65536; random += 241) {
        const float coded = moment1_of<float>(moment1_code(m, base, random) & 0xFFu, c);
        ASSERT_LT(std::fabs(coded - static_cast<double>(m)), step * (1 + 1e-4)) << m << " of " << largest;
        sum += coded;
      }
      // 272 of 65536 parts, evenly spaced.
      ASSERT_NEAR(sum / 272, m, step * (1.0 / 272 + 0x1p-17 + 1e-4)) << m << " of " << largest;
    }
  }
}

TEST(NumbersInt8SecondMoment, ItsRootIsWithinAStepAndRightOnAverageAndNeverVanishes) {
  for (const float largest : {1e-12f, 1e-6f, 0.5f, 1.9f, 1e4f, 1e18f}) {
    const uint32_t base = coding_base(group_scale(bits(largest), kMoment2Scale));
    const float c = with_bits(base);
    for (int k = 0; k <= 500; ++k) {
      const float root = largest * std::pow(static_cast<float>(k) / 500, 3.0f);  // many small ones
      const double step = step_at(root, c, 6);
      double sum = 0;
      for (uint32_t random = 0; random < 65536; random += 241) {
        const uint32_t code = moment2_code(root, base, random);
        ASSERT_EQ(code == 0, root == 0) << root << " of " << largest;
        ASSERT_LE(code, 255u);
        const double coded = std::sqrt(moment2_of<float>(code, c));
        ASSERT_LT(std::fabs(coded - root), step * (1 + 1e-4)) << root << " of " << largest;
        sum += coded;
      }
      if (root > step) {
        ASSERT_NEAR(sum / 272, root, step * (1.0 / 272 + 0x1p-17 + 1e-4)) << root << " of " << largest;
      }
    }
  }
}

TEST(NumbersInt8Moments, CodesAreKeptByDecodingAndCoding) {
  for_largest([](float largest) {
    const uint32_t base1 = coding_base(group_scale(bits(largest), kMoment1Scale));
    const uint32_t base2 = coding_base(group_scale(bits(std::min(largest, 1e18f)), kMoment2Scale));
    for (const uint32_t random : {0u, 0xFFFFu, 0x0ABCu})
      for (uint32_t c = 0; c < 256; ++c) {
        ASSERT_EQ(moment1_code(moment1_of<float>(c, with_bits(base1)), base1, random) & 0xFFu, c) << largest;
        if (largest < 1e-15f) continue;  // a second moment that underflows can't be told from 0
        const float v = moment2_of<float>(c, with_bits(base2));
        ASSERT_EQ(moment2_code(std::sqrt(v), base2, random), c) << largest;
      }
  });
}

TEST(NumbersInt8SecondMoment, AnInfiniteOneStaysInfinite) {
  const uint32_t base = coding_base(group_scale(bits(INFINITY), kMoment2Scale));
  const float c = with_bits(base), largest_root = std::sqrt(std::numeric_limits<float>::max());
  for (const uint32_t random : {0u, 0xFFFFu}) {
    const uint32_t code = moment2_code(INFINITY, base, random);
    EXPECT_LE(code, 255u);
    EXPECT_EQ(moment2_of<float>(code, c), INFINITY);
    // Its neighbours stand still with it, but not for ever.
    const float beside = moment2_of<float>(moment2_code(1e-5f, base, random), c);
    EXPECT_GE(beside, 0x1p108f);
    EXPECT_LT(beside, INFINITY);
    // A group of finite ones has no infinite code in use.
    const uint32_t finite = coding_base(group_scale(bits(largest_root), kMoment2Scale));
    EXPECT_LT(finite, base);
  }
}

TEST(NumbersInt8Moments, AGroupWithNanDecodesToNan) {
  const float scale = scale_of(kScaleOfNan);
  for (const uint32_t code : {0u, 1u, 127u, 128u, 255u}) {
    EXPECT_TRUE(std::isnan(moment1_of<float>(code, scale)));
    EXPECT_TRUE(std::isnan(moment2_of<float>(code, scale)));
  }
}

TEST(NumbersDraws, AreThePapersSevenRoundsInTheStatedOrder) {
  // Known answers of the paper's own library for philox4x32 with 7 rounds.
  const auto rounds = [](PhiloxWords<uint32_t> c, uint64_t key) {
    return philox_rounds(c, PhiloxKeys<7, uint32_t>(key));
  };
  const Philox zero = rounds({{0, 0, 0, 0}}, 0);
  EXPECT_EQ(zero.x[0], 0x5f6fb709u);
  EXPECT_EQ(zero.x[1], 0x0d893f64u);
  EXPECT_EQ(zero.x[2], 0x4f121f81u);
  EXPECT_EQ(zero.x[3], 0x4f730a48u);
  const DrawKey key{0x123456789ABCDEFull, 42, 7};
  const int64_t block = int64_t{1} << 40;
  const Philox wanted = rounds({{5, 1u << 11, 42, 7}}, key.seed);  // counter 2^43 + 5
  const Philox got = draw(Draws<uint32_t>(key), block, 5u);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(got.x[k], wanted.x[k]);
  // Halves of word k: elements 16 k + 2 * 5 and the one after.
  for (int64_t k = 0; k < 4; ++k) {
    EXPECT_EQ(random_bits(key, 64 * block + 16 * k + 10), wanted.x[k] & 0xFFFFu);
    EXPECT_EQ(random_bits(key, 64 * block + 16 * k + 11), wanted.x[k] >> 16);
  }
}

}  // namespace
}  // namespace tandem
