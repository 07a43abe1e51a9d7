// Compiled with avx512.cpp's flags on x86-64; nothing here may be called on a CPU without them.
#include "cpu_adam/isa/reduce_kernels.h"

#if defined(__AVX512F__)
#include "cpu_adam/isa/convert_avx2.h"
#include "cpu_adam/isa/convert_avx512.h"
#include "cpu_adam/isa/reduce_text.h"

namespace tandem {

namespace {

struct Avx512 {
  static constexpr int64_t kLanes = 16;
  struct Squares {
    __m512d sums[2] = {};
    template <class T>
    void add(const T* x) {
      for (int i = 0; i < 2; ++i) {
        const __m512d eight = _mm512_cvtps_pd(eight_floats(x + 8 * i));
        sums[i] = _mm512_fmadd_pd(eight, eight, sums[i]);
      }
    }
    void store(double* lanes, const void*) const {
      for (int i = 0; i < 2; ++i) _mm512_storeu_pd(lanes + 8 * i, sums[i]);
    }
  };
  template <class T>
  static __m512 load(const T* x) {
    return sixteen_floats(x);
  }
  static void store_weight(float* to, __m512 x) { _mm512_storeu_ps(to, x); }
  static void store_weight(bf16* to, __m512 x) { keep(to, rounded_bf16(x)); }
  static void store_weight(f16* to, __m512 x) { keep(to, rounded_f16(x)); }

 private:
  static void keep(void* to, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
};

constexpr ReduceKernels kKernels = reduce_table<Avx512>();

}  // namespace

const ReduceKernels* avx512_reduce_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const ReduceKernels* avx512_reduce_kernels() { return nullptr; }
}  // namespace tandem

#endif
