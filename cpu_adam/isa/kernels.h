#pragma once
#include <array>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/math/adam_formula.h"

namespace tandem {

/// One range of an Adam pass; all pointers at its first element, n elements each.
struct AdamRange {
  float *master, *moment1, *moment2;
  const void* grad;
  void* weight_out;
  int64_t n;
  float prediction;  ///< 0: publish the rounded master itself
};
using AdamKernel = void (*)(const AdamRange&, const AdamScalars&);

/// The combinations of gradient and weight types that have kernels.
struct AdamTypes {
  DType grad, weight;
};
constexpr std::array<AdamTypes, 5> kAdamTypes{{{DType::f32, DType::f32},
                                               {DType::bf16, DType::bf16},
                                               {DType::f16, DType::f16},
                                               {DType::f32, DType::bf16},
                                               {DType::f32, DType::f16}}};
constexpr size_t kDecays = 3;

/// One instruction set's kernels: [index in kAdamTypes][Decay].
struct AdamKernels {
  std::array<std::array<AdamKernel, kDecays>, kAdamTypes.size()> of;
};

/// Null where the program was built for another architecture. Calling a kernel that the CPU lacks is
/// undefined.
const AdamKernels* scalar_kernels();
const AdamKernels* avx2_kernels();
const AdamKernels* avx512_kernels();
const AdamKernels* neon_kernels();

}  // namespace tandem
