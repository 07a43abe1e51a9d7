#include "gpu/host/linear_blas.h"

#include <cblas.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/error.h"

namespace tandem::gpu {

namespace {

/// The library's own threads stay out of it: a product runs on the thread that asks for it.
void hold_at_one_thread() {
  static const bool held = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)held;
}

}  // namespace

void gemm(const Gemm& g) {
  hold_at_one_thread();
  constexpr int64_t kMost = std::numeric_limits<blasint>::max();
  ASSERT(g.m <= kMost && g.n <= kMost && g.k <= kMost && g.a.ld <= kMost && g.b.ld <= kMost && g.ldc <= kMost,
         "a product of {} x {} x {} is beyond the BLAS's integers", g.m, g.n, g.k);
  const auto transposed = [](bool yes) { return yes ? CblasTrans : CblasNoTrans; };
  const auto size = [](int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, transposed(g.storage == Storage::tn), transposed(g.storage == Storage::nt),
              size(g.m), size(g.n), size(g.k), g.alpha, g.a.data, size(g.a.ld), g.b.data, size(g.b.ld),
              g.beta, g.c, size(g.ldc));
}

namespace {

const char* cure() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "set OPENBLAS_CORETYPE=Haswell";
  return "set OPENBLAS_CORETYPE=Prescott";
#else
  return "set OPENBLAS_CORETYPE=ARMV8";
#endif
}

/// Small integers, so that products are exact in fp32 and any difference is a fault.
std::vector<float> small_integers(int64_t count, int64_t stride) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = static_cast<float>(i * stride % 31 - 15);
  return values;
}

/// Wrong elements of one product of this storage and shape.
int64_t wrong_elements(const std::function<void(const Gemm&)>& multiply, Storage storage, int64_t m,
                       int64_t n, int64_t k, float beta) {
  const int64_t lda = storage == Storage::tn ? m : k, ldb = storage == Storage::nt ? k : n;
  const std::vector<float> a = small_integers(m * k, 7919), b = small_integers(k * n, 4513);
  std::vector<float> c(static_cast<size_t>(m * n), 3.0f);
  multiply({storage, m, n, k, 1.0f, {a.data(), lda}, {b.data(), ldb}, beta, c.data(), n});
  const auto at = [](const std::vector<float>& x, int64_t i) { return x[static_cast<size_t>(i)]; };
  int64_t wrong = 0;
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < n; ++column) {
      float sum = 3.0f * beta;
      for (int64_t i = 0; i < k; ++i)
        sum += at(a, storage == Storage::tn ? i * lda + row : row * lda + i) *
               at(b, storage == Storage::nt ? column * ldb + i : i * ldb + column);
      if (!(at(c, row * n + column) == sum)) ++wrong;
    }
  return wrong;
}

}  // namespace

void check_products(const std::function<void(const Gemm&)>& multiply) {
  CHECK(openblas_get_parallel() == 1, Status::failed,
        fmt::format("the matrix library is not the pthread build ({}): calls from several threads would "
                    "disturb each other",
                    openblas_get_config()),
        "libopenblas", "use Debian's libopenblas0-pthread and check LD_LIBRARY_PATH");
  struct Shape {
    int64_t m, n, k;
  };
  constexpr std::array<Shape, 5> kShapes = {
      {{1, 1, 1}, {5, 3, 2}, {33, 17, 65}, {40, 49, 401}, {130, 95, 67}}};
  for (const Shape& s : kShapes)
    for (const Storage storage : {Storage::nn, Storage::nt, Storage::tn})
      for (const float beta : {0.0f, 1.0f}) {
        const int64_t wrong = wrong_elements(multiply, storage, s.m, s.n, s.k, beta);
        CHECK(
            wrong == 0, Status::failed,
            fmt::format("OpenBLAS computes wrongly on this CPU: {} of {} elements of a product {} x {} x {} "
                        "differ from a plain loop (kernels for {})",
                        wrong, s.m * s.n, s.m, s.n, s.k, openblas_get_corename()),
            "libopenblas", cure());
      }
}

}  // namespace tandem::gpu
