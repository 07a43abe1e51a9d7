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
      const float rounded = ulp8_rounded<float>(p, random << 24 | 0xABCDEFu);
      const uint32_t upper = upper_of(rounded), error = ulp8_error<float>(rounded, upper);
      ASSERT_LT(error, 256u);
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
    for (uint32_t random = 0; random < 256; ++random) sum += ulp8_rounded<float>(p, random << 24);
    EXPECT_EQ(sum / 256, static_cast<double>(p));  // exact: 256 values of at most 25 bits in double
  }
}

TEST(NumbersUlp8Master, KeepsZerosInfinitiesAndNan) {
  for (const uint32_t random : {0u, 0xFFFFFFFFu}) {
    for (const float p : {0.0f, -0.0f, INFINITY, -INFINITY})
      EXPECT_EQ(bits(ulp8_rounded<float>(p, random)), bits(p));
    for (const uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFF80FFFFu}) {
      const float rounded = ulp8_rounded<float>(with_bits(nan), random);
      const uint32_t upper = upper_of(rounded);
      EXPECT_TRUE(std::isnan(rounded));
      EXPECT_EQ(ulp8_error<float>(rounded, upper), 0u);
      EXPECT_TRUE(std::isnan(ulp8_joined<float>(upper, 0)));
    }
  }
}

TEST(NumbersBf16Moment, ExpectedValueIsTheMomentItself) {
  for (const float x : {1.0009766f, -3.3e-5f, 1e-39f, 0.1f, 1.9999999f, -2e30f}) {
    double sum = 0;
    for (uint32_t random = 0; random < 65536; ++random)
      sum += to_float(bf16{static_cast<uint16_t>(bf16_stochastic<float>(x, random))});
    EXPECT_EQ(sum / 65536, static_cast<double>(x));  // exact: 2^16 values of 8 bits, at most 2 steps apart
  }
}

TEST(NumbersBf16Moment, MeanOverAParameterIsUnbiased) {
  // The mean of a million roundings has a deviation of at most half a step over 1024.
  constexpr int64_t kBlocks = 1 << 14;
  const DrawKey key{3, 14, 15};
  for (const float x : {1.001f, -0.0123f}) {
    const double step = std::ldexp(1.0, std::ilogb(x) - 7);
    double first = 0, second = 0;
    for (int64_t block = 0; block < kBlocks; ++block)
      for (uint32_t lane = 0; lane < 16; ++lane)
        for (const uint32_t word : draw<uint32_t>(key, block, lane).x) {
          first += to_float(bf16{static_cast<uint16_t>(moment1_bf16<float>(x, word))}) - x;
          second += to_float(bf16{static_cast<uint16_t>(moment2_bf16<float>(x, word))}) - x;
        }
    EXPECT_LT(std::fabs(first / (64.0 * kBlocks)), 5 * 0.5 * step / 1024);
    EXPECT_LT(std::fabs(second / (64.0 * kBlocks)), 5 * 0.5 * step / 1024);
  }
}

TEST(NumbersBf16Moment, KeepsWhatItHoldsExactly) {
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t random : {0u, 0x8000u, 0xFFFFu}) {
      const float x = with_bits(upper << 16);
      const uint32_t wanted = std::isnan(x) ? upper | 0x40u : upper;
      ASSERT_EQ(bf16_stochastic<float>(x, random), wanted);
    }
  EXPECT_TRUE(std::isnan(with_bits(bf16_stochastic<float>(with_bits(0x7FFFFFFFu), 0xFFFFu) << 16)));
}

/// Scales from the smallest to nearly the largest.
std::vector<float> scales() { return {0x1p-126f, 3e-38f, 1e-30f, 1e-12f, 0.0078125f, 1.0f, 1e4f, 1e18f}; }

TEST(NumbersInt8Scales, AreTheNextBf16Above) {
  for (const float largest : {1.1754944e-38f, 1e-30f, 1e-12f, 0.3f, 1.0f, 1.0000001f, 9999.5f, 1.8e19f}) {
    for (const uint32_t scale : {moment1_scale<float>(bits(largest)), moment2_scale<float>(bits(largest))}) {
      EXPECT_GE(with_bits(scale << 16), largest);
      EXPECT_LT(with_bits((scale - 1) << 16), largest);
    }
  }
  EXPECT_EQ(moment1_scale<float>(0), 0u);
  EXPECT_EQ(moment2_scale<float>(0), 0u);
  EXPECT_EQ(with_bits(moment1_scale<float>(1) << 16), 0x1p-126f);
  EXPECT_GT(with_bits(moment2_scale<float>(bits(INFINITY)) << 16), 0x1p64f);
  for (const float bad : {0x1p126f, INFINITY, NAN})
    EXPECT_TRUE(std::isnan(with_bits(moment1_scale<float>(bits(bad)) << 16)));
  EXPECT_TRUE(std::isnan(with_bits(moment2_scale<float>(bits(NAN)) << 16)));
}

TEST(NumbersInt8FirstMoment, IsWithinOneCodeOfTheCompandedValue) {
  for (const float scale : scales())
    for (int k = -500; k <= 500; ++k) {
      const float m = scale * (static_cast<float>(k) / 500);
      const double x = static_cast<double>(m) / scale, y = 2 * x / (1 + std::fabs(x));
      double sum = 0;
      for (uint32_t random = 0; random < 4096; random += 15) {
        const auto code = static_cast<int8_t>(moment1_code<float>(m, scale, random));
        ASSERT_LT(std::fabs(code - 127 * y), 1.0 + 1e-4) << m << " of " << scale;
        sum += code;
      }
      // 274 equally spaced parts: the mean is off by at most one of them, of 2^-13, and fp32's few ulps.
      ASSERT_NEAR(sum / 274, 127 * y, 1.0 / 274 + 0x1p-13 + 1e-4) << m << " of " << scale;
    }
}

TEST(NumbersInt8FirstMoment, DecodesByTheInverse) {
  for (const float scale : scales())
    for (int c = -127; c <= 127; ++c) {
      const double y = c / 127.0, x = y / (2 - std::fabs(y));
      const double wanted = x * static_cast<double>(scale);
      // Two roundings, and one unit of the smallest denormal.
      EXPECT_NEAR(moment1_of<float>(static_cast<uint32_t>(c), scale), wanted,
                  3 * 0x1p-24 * std::fabs(wanted) + 0x1p-149);
    }
}

TEST(NumbersInt8Moments, CodesAreKeptByDecodingAndCoding) {
  for (const float scale : scales())
    for (const uint32_t random : {0u, 0xFFFFFFFFu, 0x00F00ABCu})
      for (uint32_t c = 0; c < 256; ++c) {
        if (c != 128 && scale > 1e-37f) {  // below, codes are coarser than denormals
          ASSERT_EQ(moment1_code<float>(moment1_of<float>(extended(c), scale), scale, random), c)
              << scale << ", random " << random;
        }
        // A second moment that underflows can't be told from 0.
        if (scale > 1e-15f) {
          const float v = moment2_of<float>(c, code_step(scale));
          ASSERT_EQ(moment2_code<float>(std::sqrt(v), 255.0f / scale, random), c) << scale;
        }
      }
}

TEST(NumbersInt8SecondMoment, IsWithinOneCodeAndNeverVanishes) {
  for (const float scale : {1e-12f, 1e-6f, 0.5f, 1e4f, 1e18f})
    for (int k = 0; k <= 500; ++k) {
      const float root = scale * std::pow(static_cast<float>(k) / 500, 3.0f);  // many small ones
      const double u = 255.0 * static_cast<double>(root) / scale;
      double sum = 0;
      for (uint32_t random = 0; random < 4096; random += 15) {
        const uint32_t code = moment2_code<float>(root, 255.0f / scale, random << 12);
        ASSERT_EQ(code == 0, root == 0) << root << " of " << scale;
        ASSERT_LE(code, 255u);
        if (u >= 1) {
          ASSERT_LT(std::fabs(code - u), 1.0 + 1e-4) << root << " of " << scale;
        }
        sum += code;
      }
      if (u >= 1) {
        ASSERT_NEAR(sum / 274, u, 1.0 / 274 + 0x1p-13 + 1e-4) << root << " of " << scale;
      }
    }
}

TEST(NumbersInt8SecondMoment, ARoundingToNearestWouldVanish) {  // what the rule above is for
  const float v = 1e-12f, largest = 1.0f;
  EXPECT_EQ(std::lround(255 * std::sqrt(v) / std::sqrt(largest)), 0);
  EXPECT_EQ(moment2_code<float>(std::sqrt(v), 255.0f, 0), 1u);
}

TEST(NumbersInt8SecondMoment, AnInfiniteOneStaysInfinite) {
  const float scale = with_bits(moment2_scale<float>(bits(INFINITY)) << 16);
  const uint32_t code = moment2_code<float>(INFINITY, 255.0f / scale, 0);
  EXPECT_EQ(code, 255u);
  EXPECT_EQ(moment2_of<float>(code, code_step(scale)), INFINITY);
  const float finite = std::sqrt(std::numeric_limits<float>::max());
  EXPECT_EQ(moment2_scale<float>(bits(finite)), 0x5F80u);
}

TEST(NumbersInt8Moments, AGroupWithNanDecodesToNan) {
  const float scale = with_bits(kScaleOfNan << 16);
  for (const uint32_t code : {0u, 1u, 127u}) {
    EXPECT_TRUE(std::isnan(moment1_of<float>(code, scale)));
    EXPECT_TRUE(std::isnan(moment2_of<float>(code, code_step(scale))));
  }
  EXPECT_LT(moment1_code<float>(1.0f, scale, 0), 256u);
  EXPECT_LT(moment2_code<float>(NAN, NAN, 0), 256u);
}

TEST(NumbersDraws, AreThePapersSevenRoundsInTheStatedOrder) {
  // Known answers of the paper's own library for philox4x32 with 7 rounds.
  const auto rounds = [](PhiloxWords<uint32_t> c, uint64_t key) {
    return philox_rounds<7, uint32_t>(c, key);
  };
  const Philox zero = rounds({{0, 0, 0, 0}}, 0);
  EXPECT_EQ(zero.x[0], 0x5f6fb709u);
  EXPECT_EQ(zero.x[1], 0x0d893f64u);
  EXPECT_EQ(zero.x[2], 0x4f121f81u);
  EXPECT_EQ(zero.x[3], 0x4f730a48u);
  const DrawKey key{0x123456789ABCDEFull, 42, 7};
  const int64_t block = int64_t{1} << 40;
  const Philox wanted = rounds({{5, 1u << 12, 42, 7}}, key.seed);  // counter 2^44 + 5
  const Philox got = draw<uint32_t>(key, block, 5u);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(got.x[k], wanted.x[k]);
}

}  // namespace
}  // namespace tandem
