#include "cpu_adam/host_reduce.h"

#include <gtest/gtest.h>

#include "adam_cases.h"

namespace tandem {
namespace {

constexpr int64_t kLengths[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 8 * 4096 + 1, 11 * 4096 + 777, 200003};

float value(int64_t i) {
  const Philox r = philox(3, static_cast<uint64_t>(i), 0);
  const float x =
      std::ldexp(static_cast<float>(r.x[0] >> 8) * 0x1p-24f - 0.5f, -static_cast<int>(r.x[1] % 12u));
  return x;
}

/// n values rounded to the type, as bytes.
std::vector<std::byte> plane(int64_t n, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(n) * size_of(dtype));
  for (int64_t i = 0; i < n; ++i)
    put(bytes.data() + static_cast<size_t>(i) * size_of(dtype), dtype, value(i));
  return bytes;
}
Tensor view(std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), dtype, {static_cast<int64_t>(bytes.size() / size_of(dtype))}};
}

/// The order that core/math/reduce_tree.h states, written again in recursive form.
double pairwise(const std::vector<double>& x) {
  if (x.empty()) return 0;
  if (x.size() == 1) return x[0];
  std::vector<double> half;
  for (size_t i = 0; i + 1 < x.size(); i += 2) half.push_back(x[i] + x[i + 1]);
  if (x.size() % 2 == 1) half.push_back(x.back());
  return pairwise(half);
}
double tree_sum(const std::vector<std::byte>& bytes, DType dtype) {
  const auto n = static_cast<int64_t>(bytes.size() / size_of(dtype));
  std::vector<double> leaves;
  for (int64_t begin = 0; begin < n; begin += 4096) {
    std::vector<double> lanes(16);
    for (int64_t i = begin; i < std::min(begin + 4096, n); ++i) {
      const double x = get(bytes.data() + static_cast<size_t>(i) * size_of(dtype), dtype);
      lanes[static_cast<size_t>(i % 16)] += x * x;
    }
    leaves.push_back(pairwise(lanes));
  }
  return pairwise(leaves);
}

TEST(IdentityReduce, SumIsTheTreesForEveryTypeLengthPoolAndThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : kLengths) {
      auto bytes = plane(n, dtype);
      const double wanted = tree_sum(bytes, dtype);
      for (const PoolKind kind : pool_kinds())
        for (const int threads : {1, 2, 3}) {
          const auto workers = make_workers(kind, threads);
          const SquaresAndFlags got = sum_of_squares(*workers, view(bytes, dtype));
          EXPECT_EQ(got.sum_of_squares, wanted)
              << name_of(dtype) << ", n " << n << ", " << workers->describe();
          EXPECT_EQ(got.non_finite, 0);
        }
    }
}

TEST(NumbersReduce, SumIsCloseToOneInExtendedPrecision) {
  auto bytes = plane(200003, DType::f32);
  long double sum = 0;
  for (int64_t i = 0; i < 200003; ++i) sum += static_cast<long double>(value(i)) * value(i);
  const auto workers = make_workers(PoolKind::plain, 2);
  // At most 256 + 4 + 6 additions on the way of any element, of positive terms: each half an ulp of double.
  EXPECT_NEAR(sum_of_squares(*workers, view(bytes, DType::f32)).sum_of_squares, static_cast<double>(sum),
              266 * 0x1p-53 * static_cast<double>(sum));
}

TEST(NumbersReduce, CountsEveryNonFinite) {
  const auto workers = make_workers(PoolKind::plain, 2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    auto bytes = plane(200003, dtype);
    int64_t planted = 0;
    for (const int64_t i : {0, 4095, 4096, 32768, 100000, 200002}) {
      const float bad[] = {INFINITY, -INFINITY, NAN};
      put(bytes.data() + static_cast<size_t>(i) * size_of(dtype), dtype, bad[planted % 3]);
      EXPECT_EQ(sum_of_squares(*workers, view(bytes, dtype)).non_finite, ++planted) << name_of(dtype);
    }
  }
  auto large = plane(1, DType::f32);
  put(large.data(), DType::f32, 3e38f);  // finite: its square would overflow fp32
  const SquaresAndFlags got = sum_of_squares(*workers, view(large, DType::f32));
  EXPECT_EQ(got.non_finite, 0);
  EXPECT_TRUE(std::isfinite(got.sum_of_squares));
}

TEST(IdentityReduce, RoundsWeightsElementByElement) {
  for (const PoolKind kind : pool_kinds())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{70001}}) {
        auto source = plane(n, DType::f32);
        std::vector<std::byte> wanted(static_cast<size_t>(n) * size_of(dtype)), got = wanted;
        for (int64_t i = 0; i < n; ++i)
          put_weight(wanted.data() + static_cast<size_t>(i) * size_of(dtype), dtype, value(i));
        round_weights(*make_workers(kind, 2), view(got, dtype), view(source, DType::f32));
        EXPECT_TRUE(same_bits(got, wanted)) << name_of(dtype) << ", n " << n;
      }
}

TEST(NumbersReduce, WeightsInBf16RoundHalfAwayFromZero) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; to even would be 1.
  std::vector<float> source{1.00390625f, -1.00390625f};
  std::vector<uint16_t> got(2);
  round_weights(*make_workers(PoolKind::plain, 1), Tensor(got.data(), DType::bf16, {2}),
                Tensor(source.data(), DType::f32, {2}));
  EXPECT_EQ(got, (std::vector<uint16_t>{0x3F81, 0xBF81}));
}

TEST(IdentityReduce, WidensEvery16BitValueExactly) {
  std::vector<uint16_t> source(65536);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint16_t>(i);
  std::vector<float> got(65536);
  const auto workers = make_workers(PoolKind::plain, 2);
  const Tensor to(got.data(), DType::f32, {65536});
  widen(*workers, to, Tensor(source.data(), DType::bf16, {65536}));
  for (size_t i = 0; i < source.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), static_cast<uint32_t>(i) << 16);
  widen(*workers, to, Tensor(source.data(), DType::f16, {65536}));
  for (size_t i = 0; i < source.size(); ++i) {
    const auto exponent = static_cast<int>((i >> 10) & 31u);
    if (exponent == 31) continue;  // infinities and NaN: below
    const double mantissa = static_cast<double>(i & 1023u) + (exponent == 0 ? 0 : 1024);
    const double magnitude = std::ldexp(mantissa, (exponent == 0 ? 1 : exponent) - 25);  // IEEE 754 binary16
    EXPECT_EQ(got[i], i >> 15 != 0 ? -magnitude : magnitude);
    EXPECT_EQ(std::signbit(got[i]), i >> 15 != 0);
  }
  EXPECT_EQ(got[0x7C00], INFINITY);
  EXPECT_EQ(got[0xFC00], -INFINITY);
  EXPECT_TRUE(std::isnan(got[0x7E00]));
}

TEST(ConfigReduceErrors, UnequalLengthsAndWrongTypes) {
  const auto workers = make_workers(PoolKind::plain, 1);
  std::vector<float> a(4), b(3);
  const Tensor four(a.data(), DType::f32, {4}), three(b.data(), DType::f32, {3});
  EXPECT_THROW(round_weights(*workers, four, three), InternalError);
  EXPECT_THROW(widen(*workers, four, three), InternalError);
  EXPECT_THROW(sum_of_squares(*workers, Tensor(a.data(), DType::i32, {4})), InternalError);
}

}  // namespace
}  // namespace tandem
