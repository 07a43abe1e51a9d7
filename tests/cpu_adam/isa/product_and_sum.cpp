// Compiled with -mfma on x86-64.
#include "product_and_sum.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

namespace tandem {

float product_and_sum(float a, float b, float c) { return a * b + c; }

float product_and_sum_of_vectors(float a, float b, float c) {
#if defined(__x86_64__)
  return _mm_cvtss_f32(_mm_add_ps(_mm_mul_ps(_mm_set1_ps(a), _mm_set1_ps(b)), _mm_set1_ps(c)));
#else
  return vgetq_lane_f32(vaddq_f32(vmulq_f32(vdupq_n_f32(a), vdupq_n_f32(b)), vdupq_n_f32(c)), 0);
#endif
}

}  // namespace tandem
