#pragma once
#include <array>
#include <cstdint>

#include "core/base/dtype.h"

namespace tandem {

/// The element types of the kernels.
constexpr std::array<DType, 3> kReduceTypes{DType::f32, DType::bf16, DType::f16};

/// One instruction set's kernels for cpu_adam/host_reduce.h: [index in kReduceTypes]. Pointers at any
/// alignment of their types.
struct ReduceKernels {
  /// leaf_sum_of_squares (core/math/reduce_tree.h) of n <= kReduceLeaf elements.
  std::array<double (*)(const void* x, int64_t n), kReduceTypes.size()> leaf;
  /// to[i] = round_weight(from[i]).
  std::array<void (*)(void* to, const float* from, int64_t n), kReduceTypes.size()> round;
  /// to[i] = from[i].
  std::array<void (*)(float* to, const void* from, int64_t n), kReduceTypes.size()> widen;
};

/// Null where the program was built for another architecture. Calling a kernel that the CPU lacks is
/// undefined.
const ReduceKernels* scalar_reduce_kernels();
const ReduceKernels* avx2_reduce_kernels();
const ReduceKernels* avx512_reduce_kernels();
const ReduceKernels* neon_reduce_kernels();

}  // namespace tandem
