// NEON is part of aarch64: no flags.
#include "cpu_adam/isa/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "cpu_adam/isa/adam_text.h"
#include "cpu_adam/isa/lanes.h"

namespace tandem {

namespace {

struct Neon {
  using Batch = xsimd::batch<float, xsimd::neon64>;
  using Value = Lanes<Neon>;
  static constexpr int64_t kLanes = 4;

  static Batch fused(Batch a, Batch b, Batch c) { return Batch(vfmaq_f32(c, a, b)); }
  static Batch root(Batch a) { return Batch(vsqrtq_f32(a)); }
  static Batch quotient(Batch a, Batch b) { return Batch(vdivq_f32(a, b)); }

  static Value load(const float* x) { return Batch(vld1q_f32(x)); }
  static Value load(const bf16* x) { return Batch(vreinterpretq_f32_u32(vshll_n_u16(halves(x), 16))); }
  static Value load(const f16* x) { return Batch(vcvt_f32_f16(vreinterpret_f16_u16(halves(x)))); }

  static void store(float* to, Value x) { vst1q_f32(to, x.x); }
  static void store_weight(float* to, Value x) { store(to, x); }
  /// Half away from zero; NaN keeps its upper bits and becomes quiet.
  static void store_weight(bf16* to, Value value) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value.x);
    const uint16x4_t rounded = vshrn_n_u32(vaddq_u32(bits, vdupq_n_u32(0x8000)), 16);
    const uint16x4_t quiet = vorr_u16(vshrn_n_u32(bits, 16), vdup_n_u16(0x40));
    keep(to, vbsl_u16(numbers(value.x), rounded, quiet));
  }
  /// Nearest even; every NaN becomes sign | 0x7E00.
  static void store_weight(f16* to, Value value) {
    const uint16x4_t rounded = vreinterpret_u16_f16(vcvt_f16_f32(value.x));
    const uint16x4_t quiet = vorr_u16(vand_u16(rounded, vdup_n_u16(0x8000)), vdup_n_u16(0x7E00));
    keep(to, vbsl_u16(numbers(value.x), rounded, quiet));
  }

 private:
  /// All ones where x is not NaN.
  static uint16x4_t numbers(float32x4_t x) { return vmovn_u32(vceqq_f32(x, x)); }
  static uint16x4_t halves(const void* x) {
    uint16x4_t out;
    std::memcpy(&out, x, sizeof out);
    return out;
  }
  static void keep(void* to, uint16x4_t x) { std::memcpy(to, &x, sizeof x); }
};

constexpr AdamKernels kKernels = adam_table<Neon>();

}  // namespace

const AdamKernels* neon_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const AdamKernels* neon_kernels() { return nullptr; }
}  // namespace tandem

#endif
