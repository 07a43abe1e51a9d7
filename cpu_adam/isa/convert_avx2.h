#pragma once
// Eight floats from and to memory by AVX2 and F16C. In an unnamed namespace: a copy for each file that is
// compiled with their flags (see adam_text.h).
#include <immintrin.h>

#include "core/base/dtype.h"

namespace tandem {
namespace {

inline __m128i eight_halves(const void* x) { return _mm_loadu_si128(static_cast<const __m128i*>(x)); }

inline __m256 eight_floats(const float* x) { return _mm256_loadu_ps(x); }
inline __m256 eight_floats(const bf16* x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight_halves(x)), 16));
}
inline __m256 eight_floats(const f16* x) { return _mm256_cvtph_ps(eight_halves(x)); }

/// The low 16 bits of each word.
inline __m128i packed_words(__m256i words) {
  const __m256i first =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, first), 0x08));
}

/// The words of two registers, all below 2^16.
inline __m256i sixteen_halves(__m256i first, __m256i second) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xD8);
}

/// round_weight<bf16> of numbers, in words: half away from zero.
inline __m256i bf16_of_numbers(__m256 x) {
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x8000)), 16);
}
/// round_weight<bf16>, in words: NaN keeps its upper bits and becomes quiet.
inline __m256i words_of_bf16(__m256 x) {
  const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(bf16_of_numbers(x), quiet, is_nan);
}
inline __m128i rounded_bf16(__m256 x) { return packed_words(words_of_bf16(x)); }

/// round_weight<f16> of numbers: nearest even.
inline __m128i f16_of_numbers(__m256 x) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// round_weight<f16>: every NaN becomes sign | 0x7E00.
inline __m128i rounded_f16(__m256 x) {
  const __m128i rounded = f16_of_numbers(x);
  const __m128i sign = _mm_and_si128(rounded, _mm_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m128i quiet = _mm_or_si128(sign, _mm_set1_epi16(0x7E00));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m128i mask = _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
  return _mm_blendv_epi8(rounded, quiet, mask);
}

}  // namespace
}  // namespace tandem
