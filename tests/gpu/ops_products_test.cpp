// Matrix products of the host device: the library is checked at start, may be called from many threads, and
// the scratch around it stays within its bound.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/base/error.h"
#include "cpu_adam/plain_pool.h"
#include "gpu/host/kernels/attention.h"
#include "gpu/host/linear.h"
#include "tests/gpu/op_cases_host.h"

namespace tandem::gpu {
namespace {

TEST(NumbersOfProducts, LibraryIsRightOnThisCpu) { EXPECT_NO_THROW(check_products()); }

/// One wrong element of one storage must be enough.
void expect_refused(const std::function<void(const Gemm&)>& multiply) {
  try {
    check_products(multiply);
    FAIL() << "a wrong product passed";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::failed);
    EXPECT_NE(e.message().find("OpenBLAS computes wrongly on this CPU: 1 of "), std::string::npos)
        << e.what();
    EXPECT_NE(e.hint().find("OPENBLAS_CORETYPE="), std::string::npos) << e.what();
  }
}

TEST(NumbersOfProducts, WrongLibraryIsRefused) {
  for (const Storage storage : {Storage::nn, Storage::nt, Storage::tn})
    expect_refused([=](const Gemm& g) {
      gemm(g);
      if (g.storage == storage && g.k > 400) g.c[g.m * g.n - 1] += 1;
    });
  expect_refused([](const Gemm& g) {
    gemm(g);
    if (g.beta == 1.0f && g.m == 33) g.c[5] = std::numeric_limits<float>::quiet_NaN();
  });
}

TEST(NumbersOfProducts, TilesCoverEveryElementOnce) {
  for (const int64_t m : {1, 7, 255, 256, 257, 1000, 50257})
    for (const int64_t n : {1, 95, 96, 97, 768, 769, 3072, 50257}) {
      const TileGrid grid = tile_grid(m, n);
      EXPECT_LT((grid.down - 1) * grid.rows, m) << m << " x " << n;
      EXPECT_GE(grid.down * grid.rows, m) << m << " x " << n;
      EXPECT_LT((grid.across - 1) * grid.columns, n) << m << " x " << n;
      EXPECT_GE(grid.across * grid.columns, n) << m << " x " << n;
    }
}

/// One small product of each storage, whatever the library does with its work buffers.
class SmallProducts {
 public:
  [[nodiscard]] std::vector<float> multiply(Storage storage) const {
    std::vector<float> c(kM * kN);
    gemm({storage,
          kM,
          kN,
          kK,
          1.0f,
          {a_.data(), storage == Storage::tn ? kM : kK},
          {b_.data(), storage == Storage::nt ? kK : kN},
          0.0f,
          c.data(),
          kN});
    return c;
  }

 private:
  static constexpr int64_t kM = 24, kN = 17, kK = 33;
  static std::vector<float> values(int64_t count, uint64_t seed) {
    std::vector<float> floats;
    for (const double v : op_cases::random_values(count, DType::f32, seed))
      floats.push_back(static_cast<float>(v));
    return floats;
  }
  std::vector<float> a_ = values(kM * kK, 1), b_ = values(kK * kN, 2);
};

// Without the lock around OpenBLAS's work buffers this fails within a second on two cores (tried): two calls
// were given one buffer.
TEST(NumbersOfProducts, ConcurrentCallsGiveTheSameBits) {
  const SmallProducts products;
  const std::vector<float> expected[] = {products.multiply(Storage::nn), products.multiply(Storage::nt),
                                         products.multiply(Storage::tn)};
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&] {
      for (int i = 0; i < 100000; ++i)
        if (products.multiply(static_cast<Storage>(i % 3)) != expected[i % 3]) ++wrong;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(MemoryOfProducts, ScratchStaysWithinItsBound) {
  const auto pool = make_plain_pool(2);
  Scratch scratch;
  const KernelTools tools{*row_kernels().front(), scratch};
  const int64_t m = 300, n = 800, k = 1500;
  std::vector<bf16> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
      c(static_cast<size_t>(m * n));
  product(*pool, tools, Storage::nn, Tensor(c.data(), DType::bf16, {m, n}),
          Tensor(a.data(), DType::bf16, {m, k}), Tensor(b.data(), DType::bf16, {k, n}), Into::add);
  EXPECT_GT(scratch.bytes(), 0u);
  EXPECT_LE(scratch.bytes(), host_scratch_bytes(2, DType::bf16, 16, 16));

  Scratch of_attention;
  const AttentionShape s{2, 200, 2, 1, 32, 0, 1.0f};
  std::vector<float> out(2 * 200 * 2 * 32), q(out.size()), k_and_v(2 * 200 * 32), lse(2 * 2 * 200);
  const auto wide = [](std::vector<float>& values) {
    return Tensor(values.data(), DType::f32, {2, 200, 2, 32});
  };
  const Tensor narrow(k_and_v.data(), DType::f32, {2, 200, 1, 32});
  attention_forward(*pool, {*row_kernels().front(), of_attention}, wide(out),
                    Tensor(lse.data(), DType::f32, {2, 2, 200}), wide(q), narrow, narrow, s);
  EXPECT_GT(of_attention.bytes(), 0u);
  EXPECT_LE(of_attention.bytes(), host_scratch_bytes(2, DType::f32, 200, 32));
}

}  // namespace
}  // namespace tandem::gpu
