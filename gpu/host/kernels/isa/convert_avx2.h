#pragma once
// Text of an ISA file: 16-bit conversions by intrinsics. Same bits as core/base/dtype.h, NaN payloads of f16
// aside.
#include <immintrin.h>

#include "gpu/host/kernels/isa/batch.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

inline __m128i load_8x16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline void store_8x16(void* to, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(to), x); }

inline Floats load(const bf16* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8x16(from)), 16));
}
inline Floats load(const f16* from) { return _mm256_cvtph_ps(load_8x16(from)); }

/// The upper halves of rounded floats; a NaN keeps its upper half with the quiet bit set.
inline void store_upper_halves(bf16* to, __m256i original, __m256i rounded) {
  const __m256i magnitude = _mm256_and_si256(original, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  const __m256i quiet = _mm256_or_si256(original, _mm256_set1_epi32(0x400000));
  const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  store_8x16(to, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}

inline void store(bf16* to, Floats x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  store_upper_halves(to, bits, _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))));
}
inline void store(f16* to, Floats x) {
  store_8x16(to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline void store_weight(float* to, Floats x) { store(to, x); }
inline void store_weight(bf16* to, Floats x) {
  const __m256i bits = _mm256_castps_si256(x);
  store_upper_halves(to, bits, _mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)));
}
inline void store_weight(f16* to, Floats x) { store(to, x); }

inline Doubles lower_doubles(Floats x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
inline Doubles upper_doubles(Floats x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

/// a * b + c with one rounding.
inline Floats fused_batch(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
