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
    void add(const float* x) {
      for (int i = 0; i < 4; ++i) add(sums[i], _mm_loadu_ps(x + 4 * i));
    }
    void add(const f16* x) {
      for (int i = 0; i < 4; ++i)
        add(sums[i], _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + 4 * i))));
    }
    /// Words of two elements: the even ones go to the first two sums, the odd ones to the others. Widened one
    /// by one, in order, they took a third longer.
    void add(const bf16* x) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
      const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
      const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
      add(sums[0], _mm256_castps256_ps128(even));
      add(sums[1], _mm256_extractf128_ps(even, 1));
      add(sums[2], _mm256_castps256_ps128(odd));
      add(sums[3], _mm256_extractf128_ps(odd, 1));
    }
    void store(double* lanes, const void*) const {
      for (int i = 0; i < 4; ++i) _mm256_storeu_pd(lanes + 4 * i, sums[i]);
    }
    void store(double* lanes, const bf16*) const {
      double split[kReduceLanes];
      store(split, static_cast<const void*>(nullptr));
      for (int i = 0; i < kReduceLanes; ++i) lanes[i] = split[i / 2 + i % 2 * 8];
    }

   private:
    static void add(__m256d& sum, __m128 x) {
      const __m256d wide = _mm256_cvtps_pd(x);
      sum = _mm256_fmadd_pd(wide, wide, sum);
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
