// NEON is part of aarch64: no flags.
#include "cpu_adam/isa/reduce_kernels.h"

#if defined(__aarch64__)
#include "cpu_adam/isa/convert_neon.h"
#include "cpu_adam/isa/reduce_text.h"

namespace tandem {

namespace {

struct Neon {
  static constexpr int64_t kLanes = 4;
  struct Squares {
    float64x2_t sums[8] = {};
    template <class T>
    void add(const T* x) {
      for (int i = 0; i < 4; ++i) {
        const float32x4_t four = four_floats(x + 4 * i);
        const float64x2_t low = vcvt_f64_f32(vget_low_f32(four)), high = vcvt_high_f64_f32(four);
        sums[2 * i] = vfmaq_f64(sums[2 * i], low, low);
        sums[2 * i + 1] = vfmaq_f64(sums[2 * i + 1], high, high);
      }
    }
    void store(double* lanes, const void*) const {
      for (int i = 0; i < 8; ++i) vst1q_f64(lanes + 2 * i, sums[i]);
    }
  };
  template <class T>
  static float32x4_t load(const T* x) {
    return four_floats(x);
  }
  static void store_weight(float* to, float32x4_t x) { vst1q_f32(to, x); }
  static void store_weight(bf16* to, float32x4_t x) { keep(to, rounded_bf16(x)); }
  static void store_weight(f16* to, float32x4_t x) { keep(to, rounded_f16(x)); }

 private:
  static void keep(void* to, uint16x4_t x) { std::memcpy(to, &x, sizeof x); }
};

constexpr ReduceKernels kKernels = reduce_table<Neon>();

}  // namespace

const ReduceKernels* neon_reduce_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const ReduceKernels* neon_reduce_kernels() { return nullptr; }
}  // namespace tandem

#endif
