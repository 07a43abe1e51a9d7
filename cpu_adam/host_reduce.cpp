#include "cpu_adam/host_reduce.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/math/reduce_tree.h"
#include "cpu_adam/adam.h"

namespace tandem {

namespace {

constexpr int64_t kLeavesPerTask = 8;
constexpr int64_t kGrain = kLeavesPerTask * kReduceLeaf;  // elements of a task

/// body(zero of the tensor's element type): the one place that lists the weight types.
template <class Body>
void with_float_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(f16{});
    default:
      ASSERT(false, "{} where a weight type is needed", name_of(dtype));
  }
}

template <class T>
SquaresAndFlags reduce(Workers& workers, const T* x, int64_t n) {
  std::vector<double> leaves(static_cast<size_t>((n + kReduceLeaf - 1) / kReduceLeaf));
  std::atomic<int64_t> bad{0};
  workers.ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    int64_t found = 0;
    for (int64_t i = begin; i < end; i += kReduceLeaf)
      leaves[static_cast<size_t>(i / kReduceLeaf)] =
          leaf_sum_of_squares(x + i, i + kReduceLeaf < end ? kReduceLeaf : end - i);
    for (int64_t i = begin; i < end; ++i) found += non_finite(x[i]) ? 1 : 0;
    bad.fetch_add(found, std::memory_order_relaxed);  // integers: the order doesn't matter
  });
  return {reduce_leaves(leaves.data(), static_cast<int64_t>(leaves.size())), bad.load()};
}

}  // namespace

SquaresAndFlags sum_of_squares(Workers& workers, const Tensor& x) {
  SquaresAndFlags out;
  with_float_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    out = reduce(workers, x.data<T>(), x.numel());
  });
  return out;
}

void round_weights(Workers& workers, const Tensor& dst, const Tensor& src) {
  ASSERT(dst.numel() == src.numel(), "{} weights from {} masters", dst.numel(), src.numel());
  const float* from = src.data<float>();
  with_float_type(dst.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = dst.data<T>();
    workers.ranges(src.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = round_weight<T>(from[i]);
    });
  });
}

void copy_plane(Workers& workers, const Tensor& dst, const Tensor& src) {
  ASSERT(dst.dtype() == src.dtype() && dst.numel() == src.numel(), "{} elements copied to {}", src.numel(),
         dst.numel());
  workers.ranges(src.numel(), kAdamGrain, [&](int64_t begin, int64_t end) {
    const Tensor from = src.flat(begin, end - begin);
    std::memcpy(dst.flat(begin, end - begin).raw(), from.raw(), from.bytes());
  });
}

void widen(Workers& workers, const Tensor& dst, const Tensor& src) {
  ASSERT(dst.numel() == src.numel(), "{} elements widened to {}", src.numel(), dst.numel());
  float* to = dst.data<float>();
  with_float_type(src.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = src.data<T>();
    workers.ranges(src.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = to_float(from[i]);
    });
  });
}

}  // namespace tandem
