// The row kernels' instruction sets: same text, same formula, no function shared between files of other
// flags.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <vector>

#include "gpu/host/kernels/row_kernels.h"
#include "tests/gpu/op_cases.h"

namespace tandem::gpu {
namespace {

TEST(IdentityOfRowKernels, AdamEqualsTheScalarFormulaBitForBit) {
  const int64_t n = 1003;
  const auto floats = [&](uint64_t seed, double size) {
    std::vector<float> x;
    for (const double v : op_cases::random_values(n, DType::f32, seed, size))
      x.push_back(static_cast<float>(v));
    x[1] = 0;
    x[2] = 1e-30f;
    x[3] = 1e-42f;  // denormal
    return x;
  };
  const AdamScalars scalars = adam_scalars({.weight_decay = 0.1}, 1e-3, 7, 0.3, 1024);
  const AdamConstants<float> constants(scalars);
  std::vector<float> p = floats(1, 1), m = floats(2, 0.1), v = floats(3, 0.1), weight(static_cast<size_t>(n));
  for (float& x : v) x = std::fabs(x);
  const std::vector<float> grad = floats(4, 500);
  auto p2 = p, m2 = m, v2 = v, weight2 = weight;
  for (size_t i = 0; i < p.size(); ++i) {
    const float before = p[i];
    adam_update<Decay::decoupled>(p[i], m[i], v[i], grad[i], constants);
    weight[i] = predicted(p[i], before, 1.5f);
  }
  for (const RowKernels* rows : row_kernels()) {
    auto p3 = p2, m3 = m2, v3 = v2, weight3 = weight2;
    rows->adam({p3.data(), m3.data(), v3.data(), weight3.data(), DType::f32, grad.data(), DType::f32, n},
               Decay::decoupled, scalars, 1.5f);
    EXPECT_EQ(p3, p) << rows->isa;
    EXPECT_EQ(m3, m) << rows->isa;
    EXPECT_EQ(v3, v) << rows->isa;
    EXPECT_EQ(weight3, weight) << rows->isa;
  }
}

TEST(IdentityOfRowKernels, LeafSquaresAddInTheOrderOfTheLanes) {
  constexpr int64_t kLanesOfALeaf = 16;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : {1, 15, 16, 17, 1000, 4096}) {
      const op_cases::Values values = op_cases::random_values(n, dtype, static_cast<uint64_t>(n));
      std::array<double, kLanesOfALeaf> expected = {};
      for (int64_t i = 0; i < n; ++i) {
        const double value = values[static_cast<size_t>(i)];
        expected[static_cast<size_t>(i % kLanesOfALeaf)] += value * value;
      }
      std::vector<float> x(values.begin(), values.end());
      std::vector<std::byte> stored(x.size() * size_of(dtype));
      for (const RowKernels* rows : row_kernels()) {
        std::array<double, kLanesOfALeaf> lanes;
        rows->cast(stored.data(), dtype, x.data(), DType::f32, n);
        EXPECT_EQ(rows->leaf_squares(lanes.data(), stored.data(), dtype, n), 0);
        EXPECT_EQ(lanes, expected) << rows->isa << ", " << n << " x " << name_of(dtype);
      }
    }
}

TEST(NumbersOfRowKernels, ExpIsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x(4001), e(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = -87.0f * static_cast<float>(i) / 4000.0f;
  for (const RowKernels* rows : row_kernels()) {
    rows->softmax_write(e.data(), DType::f32, x.data(), 0.0f, 1.0f, static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      EXPECT_NEAR(e[i], expected, 2 * std::ldexp(expected, -23)) << rows->isa << ", exp(" << x[i] << ")";
    }
  }
}

TEST(NumbersOfRowKernels, LongSumsHoldAMillionth) {
  std::vector<float> x(50257);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.1f + 1e-6f * static_cast<float>(i % 1000);
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (const RowKernels* rows : row_kernels())
    EXPECT_NEAR(rows->dot(x.data(), x.data(), DType::f32, static_cast<int64_t>(x.size())), sum, 1e-6 * sum)
        << rows->isa;
}

TEST(NumbersOfRowKernels, NonFiniteLogitsShowInTheSum) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (size_t at = 0; at < 77; ++at) {
      std::vector<float> x(77, 1.0f);
      x[at] = bad;
      for (const RowKernels* rows : row_kernels()) {
        const RowSoftmax s = rows->softmax_sum(x.data(), 77);
        EXPECT_FALSE(std::isfinite(s.sum)) << rows->isa << " at " << at;
      }
    }
}

/// Weak symbols are what the linker may take from any file: one compiled for AVX2 would run on every CPU.
TEST(IdentityOfRowKernels, FilesOfOtherFlagsShareNoFunction) {
  const std::filesystem::path object =
      std::filesystem::path(TANDEM_BINARY_DIR) / "gpu/CMakeFiles/tandem_gpu.dir/host/kernels/isa/avx2.cpp.o";
  ASSERT_TRUE(std::filesystem::exists(object)) << object;
  FILE* symbols = popen(("nm '" + object.string() + "'").c_str(), "r");
  ASSERT_NE(symbols, nullptr);
  std::array<char, 4096> line{};
  int seen = 0;
  while (fgets(line.data(), line.size(), symbols) != nullptr) {
    const std::string text = line.data();
    ++seen;
    const bool weak = text.find(" W ") != std::string::npos || text.find(" u ") != std::string::npos;
    EXPECT_TRUE(!weak || text.find("fma3") != std::string::npos || text.find("4avx2") != std::string::npos)
        << text;
  }
  EXPECT_EQ(pclose(symbols), 0);
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace tandem::gpu
