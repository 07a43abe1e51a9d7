#include "cpu_adam/host_reduce.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/math/reduce_tree.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/isa/reduce_kernels.h"

namespace tandem {

namespace {

constexpr int64_t kGrain = 8 * kReduceLeaf;  // elements of a task

/// In the order of Isa.
constexpr std::array kKernels{scalar_reduce_kernels, avx2_reduce_kernels, avx512_reduce_kernels,
                              neon_reduce_kernels};

const ReduceKernels& kernels_of(Isa isa) {
  const ReduceKernels* kernels = kKernels.at(static_cast<size_t>(isa))();
  ASSERT(kernels != nullptr, "host_reduce on {}, which isn't built for this architecture", name_of(isa));
  return *kernels;
}

/// The type's index in kReduceTypes.
size_t index_of(DType dtype) {
  for (size_t i = 0; i < kReduceTypes.size(); ++i)
    if (kReduceTypes[i] == dtype) return i;
  ASSERT(false, "{} where a weight type is needed", name_of(dtype));
}

std::byte* element(const Tensor& x, int64_t i) {
  return x.bytes_at(static_cast<size_t>(i) * size_of(x.dtype()));
}

template <class T>
int64_t count_non_finite(const void* plane, int64_t n) {
  const T* x = static_cast<const T*>(plane);
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) found += non_finite(x[i]) ? 1 : 0;
  return found;
}
/// In the order of kReduceTypes.
constexpr std::array<int64_t (*)(const void*, int64_t), kReduceTypes.size()> kCountNonFinite{
    count_non_finite<float>, count_non_finite<bf16>, count_non_finite<f16>};

}  // namespace

SquaresAndFlags sum_of_squares(Workers& workers, Isa isa, const Tensor& x) {
  const size_t type = index_of(x.dtype());
  const auto leaf = kernels_of(isa).leaf[type];
  std::vector<double> leaves(static_cast<size_t>((x.numel() + kReduceLeaf - 1) / kReduceLeaf));
  std::atomic<int64_t> non_finite{0};
  workers.ranges(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kReduceLeaf) {
      const int64_t n = std::min(kReduceLeaf, end - i);
      const double sum = leaf(element(x, i), n);
      leaves[static_cast<size_t>(i / kReduceLeaf)] = sum;
      // Squares of finite floats can't overflow a double, so only here is there anything to count.
      if (!std::isfinite(sum)) non_finite += kCountNonFinite[type](element(x, i), n);
    }
  });
  return {reduce_leaves(leaves.data(), static_cast<int64_t>(leaves.size())), non_finite.load()};
}

void round_weights(Workers& workers, Isa isa, const Tensor& dst, const Tensor& src) {
  ASSERT(dst.numel() == src.numel(), "{} weights from {} masters", dst.numel(), src.numel());
  const auto round = kernels_of(isa).round[index_of(dst.dtype())];
  const float* from = src.data<float>();
  workers.ranges(src.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { round(element(dst, begin), from + begin, end - begin); });
}

void widen(Workers& workers, Isa isa, const Tensor& dst, const Tensor& src) {
  ASSERT(dst.numel() == src.numel(), "{} elements widened to {}", src.numel(), dst.numel());
  const auto convert = kernels_of(isa).widen[index_of(src.dtype())];
  float* to = dst.data<float>();
  workers.ranges(src.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { convert(to + begin, element(src, begin), end - begin); });
}

void copy_plane(Workers& workers, const Tensor& dst, const Tensor& src) {
  ASSERT(dst.dtype() == src.dtype() && dst.numel() == src.numel(), "{} elements copied to {}", src.numel(),
         dst.numel());
  workers.ranges(src.numel(), kAdamGrain, [&](int64_t begin, int64_t end) {
    const Tensor from = src.flat(begin, end - begin);
    std::memcpy(dst.flat(begin, end - begin).raw(), from.raw(), from.bytes());
  });
}

}  // namespace tandem
