#pragma once
#include <array>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/math/adam_formula.h"
#include "core/math/philox.h"
#include "core/math/state_formats.h"
#include "cpu_adam/adam_sums.h"

namespace tandem {

/// One range of an Adam pass; all pointers at its first element (scales: at its first group), n elements
/// each. Where a format lacks a plane, its pointer isn't used.
struct AdamRange {
  void *master, *moment1, *moment2;
  uint16_t *scale1, *scale2;
  const void* grad;
  const uint16_t* upper_in;
  uint16_t* upper_out;  ///< null where weight_out is the same plane
  void* weight_out;
  int64_t n;
  float prediction;
  bool predicts;  ///< prediction isn't 0; else the rounded master itself is published
  DrawKey key;
  int64_t draw_block;  ///< of the first element
  bool stream;         ///< weight_out, at a multiple of 64 bytes, isn't read: past the caches
  AdamSums* sums;      ///< added to, if not null
};
using AdamKernel = void (*)(const AdamRange&, const AdamScalars&);

/// The combinations of gradient and weight types that have kernels; masters beside their weights have those
/// of bf16 weights alone.
struct AdamTypes {
  DType grad, weight;
};
constexpr std::array<AdamTypes, 5> kAdamTypes{{{DType::f32, DType::f32},
                                               {DType::bf16, DType::bf16},
                                               {DType::f16, DType::f16},
                                               {DType::f32, DType::bf16},
                                               {DType::f32, DType::f16}}};
constexpr size_t kDecays = 3;

/// The kernels of one format: [index in kAdamTypes][Decay]; null where there is none.
using AdamFormatKernels = std::array<std::array<AdamKernel, kDecays>, kAdamTypes.size()>;

/// One instruction set's kernels: [index in all_state_formats()].
struct AdamKernels {
  std::array<AdamFormatKernels, all_state_formats().size()> of;
};

/// Null where the program was built for another architecture. Calling a kernel that the CPU lacks is
/// undefined.
const AdamKernels* scalar_kernels();
const AdamKernels* avx2_kernels();
const AdamKernels* avx512_kernels();
const AdamKernels* neon_kernels();

}  // namespace tandem
