#include "cpu_adam/host_reduce.h"

#include <gtest/gtest.h>

#include "adam_cases.h"

namespace tandem {
namespace {

constexpr int64_t kLengths[] = {
    0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 4095, 4096, 8 * 4096 + 1, 11 * 4096 + 777, 70001};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

float value(int64_t i) {
  const Philox r = philox(3, static_cast<uint64_t>(i), 0);
  return std::ldexp(static_cast<float>(r.x[0] >> 8) * 0x1p-24f - 0.5f, -static_cast<int>(r.x[1] % 12u));
}
/// Any float: denormals, infinities and NaN of every kind among them.
float any_value(int64_t i) { return std::bit_cast<float>(philox(4, static_cast<uint64_t>(i), 0).x[0]); }

/// n elements from `shift` elements into their memory on, and as many unused ones behind them.
struct Elements {
  DType dtype;
  int64_t n, shift;
  std::vector<std::byte> bytes;
  Elements(DType dtype, int64_t n, int64_t shift = 0)
      : dtype(dtype), n(n), shift(shift), bytes(static_cast<size_t>(n + 2 * shift) * size_of(dtype)) {}
  Elements(DType dtype, int64_t n, int64_t shift, float (*value)(int64_t)) : Elements(dtype, n, shift) {
    for (int64_t i = 0; i < n; ++i) put(at(i), dtype, value(i));
  }
  [[nodiscard]] std::byte* at(int64_t i) {
    return bytes.data() + static_cast<size_t>(shift + i) * size_of(dtype);
  }
  [[nodiscard]] Tensor view() { return {at(0), dtype, {n}}; }
};

/// The order that core/math/reduce_tree.h states, written again in recursive form.
double pairwise(const std::vector<double>& x) {
  if (x.empty()) return 0;
  if (x.size() == 1) return x[0];
  std::vector<double> half;
  for (size_t i = 0; i + 1 < x.size(); i += 2) half.push_back(x[i] + x[i + 1]);
  if (x.size() % 2 == 1) half.push_back(x.back());
  return pairwise(half);
}
double tree_sum(Elements& x) {
  std::vector<double> leaves;
  for (int64_t begin = 0; begin < x.n; begin += 4096) {
    std::vector<double> lanes(16);
    for (int64_t i = begin; i < std::min(begin + 4096, x.n); ++i) {
      const double one = get(x.at(i), x.dtype);
      lanes[static_cast<size_t>(i % 16)] += one * one;
    }
    leaves.push_back(pairwise(lanes));
  }
  return pairwise(leaves);
}

TEST(IdentityReduce, SumIsTheTreesForEveryIsaTypeLengthAndAlignment) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const DType dtype : kTypes)
    for (const int64_t n : kLengths)
      for (const int64_t shift : {0, 1, 3}) {
        Elements x(dtype, n, shift, value);
        const double wanted = tree_sum(x);
        for (const Isa isa : usable_isas()) {
          const SquaresAndFlags got = sum_of_squares(*workers, isa, x.view());
          EXPECT_EQ(got.sum_of_squares, wanted)
              << name_of(isa) << ", " << name_of(dtype) << ", n " << n << ", shift " << shift;
          EXPECT_EQ(got.non_finite, 0);
        }
      }
}

TEST(IdentityReduce, SumIsTheTreesForEveryPoolAndThreadCount) {
  Elements x(DType::bf16, 200003, 0, value);
  const double wanted = tree_sum(x);
  for (const PoolKind kind : pool_kinds())
    for (const int threads : {1, 2, 3, 5})
      EXPECT_EQ(sum_of_squares(*make_workers(kind, threads), usable_isas().back(), x.view()).sum_of_squares,
                wanted)
          << threads << " threads";
}

TEST(NumbersReduce, SumIsCloseToOneInExtendedPrecision) {
  Elements x(DType::f32, 200003, 0, value);
  long double sum = 0;
  for (int64_t i = 0; i < x.n; ++i) sum += static_cast<long double>(value(i)) * value(i);
  const auto workers = make_workers(PoolKind::plain, 2);
  // At most 256 + 4 + 6 additions on the way of any element, of positive terms: each half an ulp of double.
  EXPECT_NEAR(sum_of_squares(*workers, Isa::scalar, x.view()).sum_of_squares, static_cast<double>(sum),
              266 * 0x1p-53 * static_cast<double>(sum));
}

TEST(NumbersReduce, CountsEveryNonFinite) {
  const auto workers = make_workers(PoolKind::plain, 2);
  for (const Isa isa : usable_isas())
    for (const DType dtype : kTypes) {
      Elements x(dtype, 200003, 1, value);
      int64_t planted = 0;
      for (const int64_t i : {0, 1, 4095, 4096, 32768, 100000, 200002}) {
        const float bad[] = {INFINITY, -INFINITY, NAN};
        put(x.at(i), dtype, bad[planted % 3]);
        const SquaresAndFlags got = sum_of_squares(*workers, isa, x.view());
        EXPECT_EQ(got.non_finite, ++planted) << name_of(isa) << ", " << name_of(dtype);
        EXPECT_FALSE(std::isfinite(got.sum_of_squares));
        EXPECT_EQ(std::isnan(got.sum_of_squares), planted >= 3);  // infinities alone add up to one
      }
    }
}

TEST(NumbersReduce, NothingFiniteIsCounted) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas())
    for (const DType dtype : kTypes) {
      Elements x(dtype, 4096);
      const float largest = dtype == DType::f16 ? 65504.0f : 0x1.FEp127f;  // of bf16, and almost of fp32
      for (int64_t i = 0; i < x.n; ++i) put(x.at(i), dtype, i % 2 == 0 ? largest : -largest);
      const SquaresAndFlags got = sum_of_squares(*workers, isa, x.view());  // squares overflow fp32
      EXPECT_EQ(got.non_finite, 0) << name_of(isa) << ", " << name_of(dtype);
      EXPECT_EQ(got.sum_of_squares, 4096.0 * largest * static_cast<double>(largest));
    }
}

TEST(NumbersReduce, DenormalsAreNotTakenForZero) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas())
    for (const DType dtype : kTypes) {
      Elements x(dtype, 1024);
      const float tiny = dtype == DType::f16 ? 0x1p-24f : 0x1p-133f;  // the smallest of f16 and of bf16
      for (int64_t i = 0; i < x.n; ++i) put(x.at(i), dtype, tiny);
      EXPECT_EQ(sum_of_squares(*workers, isa, x.view()).sum_of_squares,
                1024.0 * tiny * static_cast<double>(tiny))
          << name_of(isa) << ", " << name_of(dtype);
    }
}

TEST(IdentityReduce, RoundsWeightsElementByElement) {
  for (const int threads : {1, 3}) {
    const auto workers = make_workers(PoolKind::plain, threads);
    for (const Isa isa : usable_isas())
      for (const DType dtype : kTypes)
        for (const int64_t n : kLengths)
          for (const int64_t shift : {0, 1}) {
            Elements source(DType::f32, n, 1 - shift, any_value), wanted(dtype, n, shift), got = wanted;
            for (int64_t i = 0; i < n; ++i) put_weight(wanted.at(i), dtype, any_value(i));
            round_weights(*workers, isa, got.view(), source.view());
            EXPECT_TRUE(same_bits(got.bytes, wanted.bytes))
                << name_of(isa) << ", " << name_of(dtype) << ", n " << n << ", shift " << shift;
          }
  }
}

TEST(IdentityReduce, RoundsWeightsHalfwayBetweenAnyTwo16BitValuesAndBesideThat) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Elements source(DType::f32, 3 * 65536), wanted(dtype, source.n), got = wanted;
    for (uint32_t i = 0; i < 65536; ++i) {
      // Where exponents are equal, halfway is half a step of the mantissa on: of bf16 16 bits, of f16 13.
      const auto half = static_cast<uint16_t>(i);
      const uint32_t halfway =
          dtype == DType::bf16 ? i << 16 | 0x8000u : float_bits(to_float(f16{half})) + 0x1000u;
      for (uint32_t k = 0; k < 3; ++k) {
        const uint32_t bits = halfway + k - 1;
        std::memcpy(source.at(3 * i + k), &bits, sizeof bits);
        put_weight(wanted.at(3 * i + k), dtype, bits_float(bits));
      }
    }
    for (const Isa isa : usable_isas()) {
      round_weights(*workers, isa, got.view(), source.view());
      EXPECT_TRUE(same_bits(got.bytes, wanted.bytes)) << name_of(isa) << ", " << name_of(dtype);
    }
  }
}

TEST(NumbersReduce, WeightsInBf16RoundHalfAwayFromZero) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; to even would be 1.
  std::vector<float> source{1.00390625f, -1.00390625f};
  std::vector<uint16_t> got(2);
  round_weights(*make_workers(PoolKind::plain, 1), Isa::scalar, Tensor(got.data(), DType::bf16, {2}),
                Tensor(source.data(), DType::f32, {2}));
  EXPECT_EQ(got, (std::vector<uint16_t>{0x3F81, 0xBF81}));
}

TEST(IdentityReduce, WidensEvery16BitValueExactly) {
  std::vector<uint16_t> source(65536);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint16_t>(i);
  std::vector<float> got(65536);
  const auto workers = make_workers(PoolKind::plain, 2);
  const Tensor to(got.data(), DType::f32, {65536});
  for (const Isa isa : usable_isas()) {
    widen(*workers, isa, to, Tensor(source.data(), DType::bf16, {65536}));
    for (size_t i = 0; i < source.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), static_cast<uint32_t>(i) << 16) << name_of(isa);
    widen(*workers, isa, to, Tensor(source.data(), DType::f16, {65536}));
    for (size_t i = 0; i < source.size(); ++i) {
      const auto exponent = static_cast<int>((i >> 10) & 31u);
      const uint32_t sign = static_cast<uint32_t>(i >> 15) << 31, payload = (i & 1023u) << 13;
      const double mantissa = static_cast<double>(i & 1023u) + (exponent == 0 ? 0 : 1024);
      const double magnitude =
          std::ldexp(mantissa, (exponent == 0 ? 1 : exponent) - 25);  // IEEE 754 binary16
      uint32_t wanted = std::bit_cast<uint32_t>(static_cast<float>(magnitude)) | sign;
      if (exponent == 31) wanted = sign | 0x7F800000u | payload | (payload != 0 ? 0x400000u : 0u);
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), wanted) << name_of(isa) << ", " << i;
    }
  }
}

TEST(IdentityReduce, WidensEveryLengthAndAlignment) {
  const auto workers = make_workers(PoolKind::plain, 3);
  for (const Isa isa : usable_isas())
    for (const DType dtype : kTypes)
      for (const int64_t n : kLengths) {
        Elements source(dtype, n, 1, value), got(DType::f32, n, 3), wanted = got;
        for (int64_t i = 0; i < n; ++i) put(wanted.at(i), DType::f32, get(source.at(i), dtype));
        widen(*workers, isa, got.view(), source.view());
        EXPECT_TRUE(same_bits(got.bytes, wanted.bytes))
            << name_of(isa) << ", " << name_of(dtype) << ", n " << n;
      }
}

TEST(ConfigReduceErrors, UnequalLengthsWrongTypesAndAnIsaThatIsNotBuilt) {
  const auto workers = make_workers(PoolKind::plain, 1);
  std::vector<float> a(4), b(3);
  const Tensor four(a.data(), DType::f32, {4}), three(b.data(), DType::f32, {3});
  EXPECT_THROW(round_weights(*workers, Isa::scalar, four, three), InternalError);
  EXPECT_THROW(widen(*workers, Isa::scalar, four, three), InternalError);
  EXPECT_THROW(sum_of_squares(*workers, Isa::scalar, Tensor(a.data(), DType::i32, {4})), InternalError);
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon}) {
    if (adam_built_for(isa)) continue;
    EXPECT_THROW(sum_of_squares(*workers, isa, four), InternalError);
  }
}

}  // namespace
}  // namespace tandem
