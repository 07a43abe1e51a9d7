// Compiled with avx2.cpp's flags on x86-64; nothing here may be called on a CPU without them.
#include "cpu_adam/isa/reduce_kernels.h"

#if defined(__AVX2__)
#include "cpu_adam/isa/convert_avx2.h"
#include "cpu_adam/isa/reduce_text.h"

namespace tandem {

namespace {

struct Avx2 {
  static constexpr int64_t kLanes = 8;
  struct Squares {
    __m256d sums[4] = {};
    template <class T>
    void add(const T* x) {
      for (int i = 0; i < 4; ++i) {
        const __m256d four = doubles(x + 4 * i);
        sums[i] = _mm256_fmadd_pd(four, four, sums[i]);
      }
    }
    void store(double* lanes) const {
      for (int i = 0; i < 4; ++i) _mm256_storeu_pd(lanes + 4 * i, sums[i]);
    }
  };
  template <class T>
  static __m256 load(const T* x) {
    return eight_floats(x);
  }
  static void store_weight(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
  static void store_weight(bf16* to, __m256 x) { keep(to, rounded_bf16(x)); }
  static void store_weight(f16* to, __m256 x) { keep(to, rounded_f16(x)); }

 private:
  static __m256d doubles(const float* x) { return _mm256_cvtps_pd(_mm_loadu_ps(x)); }
  static __m256d doubles(const bf16* x) {
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(four_halves(x)), 16)));
  }
  static __m256d doubles(const f16* x) { return _mm256_cvtps_pd(_mm_cvtph_ps(four_halves(x))); }
  static __m128i four_halves(const void* x) { return _mm_loadl_epi64(static_cast<const __m128i*>(x)); }
  static void keep(void* to, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(to), x); }
};

constexpr ReduceKernels kKernels = reduce_table<Avx2>();

}  // namespace

const ReduceKernels* avx2_reduce_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const ReduceKernels* avx2_reduce_kernels() { return nullptr; }
}  // namespace tandem

#endif
