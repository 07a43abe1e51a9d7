#pragma once
// Four floats from and to memory by NEON. In an unnamed namespace, as its x86 counterparts.
#include <arm_neon.h>

#include <cstring>

#include "core/base/dtype.h"

namespace tandem {
namespace {

inline uint16x4_t four_halves(const void* x) {
  uint16x4_t out;
  std::memcpy(&out, x, sizeof out);
  return out;
}

inline float32x4_t four_floats(const float* x) { return vld1q_f32(x); }
inline float32x4_t four_floats(const bf16* x) {
  return vreinterpretq_f32_u32(vshll_n_u16(four_halves(x), 16));
}
inline float32x4_t four_floats(const f16* x) { return vcvt_f32_f16(vreinterpret_f16_u16(four_halves(x))); }

/// All ones where x is not NaN.
inline uint16x4_t are_numbers(float32x4_t x) { return vmovn_u32(vceqq_f32(x, x)); }

/// round_weight<bf16> of numbers: half away from zero.
inline uint16x4_t bf16_of_numbers(float32x4_t x) {
  return vshrn_n_u32(vaddq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x8000)), 16);
}
/// round_weight<bf16>: NaN keeps its upper bits and becomes quiet.
inline uint16x4_t rounded_bf16(float32x4_t x) {
  const uint16x4_t quiet = vorr_u16(vshrn_n_u32(vreinterpretq_u32_f32(x), 16), vdup_n_u16(0x40));
  return vbsl_u16(are_numbers(x), bf16_of_numbers(x), quiet);
}

/// round_weight<f16> of numbers: nearest even.
inline uint16x4_t f16_of_numbers(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
/// round_weight<f16>: every NaN becomes sign | 0x7E00.
inline uint16x4_t rounded_f16(float32x4_t x) {
  const uint16x4_t rounded = f16_of_numbers(x);
  const uint16x4_t quiet = vorr_u16(vand_u16(rounded, vdup_n_u16(0x8000)), vdup_n_u16(0x7E00));
  return vbsl_u16(are_numbers(x), rounded, quiet);
}

}  // namespace
}  // namespace tandem
