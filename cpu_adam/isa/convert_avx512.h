#pragma once
// Sixteen floats from and to memory by AVX-512 F, BW and VL. In an unnamed namespace: a copy for each file
// that is compiled with their flags (see adam_text.h).
#include <immintrin.h>

#include "core/base/dtype.h"

namespace tandem {
namespace {

inline __m256i sixteen_halves(const void* x) { return _mm256_loadu_si256(static_cast<const __m256i*>(x)); }

inline __m512 sixteen_floats(const float* x) { return _mm512_loadu_ps(x); }
inline __m512 sixteen_floats(const bf16* x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(sixteen_halves(x)), 16));
}
inline __m512 sixteen_floats(const f16* x) { return _mm512_cvtph_ps(sixteen_halves(x)); }

/// round_weight<bf16> of numbers, in words: half away from zero.
inline __m512i words_of_bf16_numbers(__m512 x) {
  return _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)), 16);
}
inline __m256i bf16_of_numbers(__m512 x) { return _mm512_cvtepi32_epi16(words_of_bf16_numbers(x)); }
/// round_weight<bf16>: NaN keeps its upper bits and becomes quiet.
inline __m256i rounded_bf16(__m512 x) {
  const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(words_of_bf16_numbers(x), nan, quiet));
}

/// round_weight<f16> of numbers: nearest even.
inline __m256i f16_of_numbers(__m512 x) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// round_weight<f16>: every NaN becomes sign | 0x7E00.
inline __m256i rounded_f16(__m512 x) {
  const __m256i rounded = f16_of_numbers(x);
  const __m256i sign = _mm256_and_si256(rounded, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m256i quiet = _mm256_or_si256(sign, _mm256_set1_epi16(0x7E00));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm256_mask_mov_epi16(rounded, nan, quiet);
}

}  // namespace
}  // namespace tandem
