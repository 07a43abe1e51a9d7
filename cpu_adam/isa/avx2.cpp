// Compiled with -mavx2 -mfma -mf16c on x86-64; nothing here may be called on a CPU without them.
#include "cpu_adam/isa/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "cpu_adam/isa/adam_text.h"
#include "cpu_adam/isa/lanes.h"

namespace tandem {

namespace {

struct Avx2 {
  using Batch = xsimd::batch<float, xsimd::fma3<xsimd::avx2>>;
  using WordBatch = xsimd::batch<uint32_t, xsimd::fma3<xsimd::avx2>>;
  using Value = Lanes<Avx2>;
  using Word = WordLanes<Avx2>;
  using Mask = __m256i;  // all bits of a lane
  using Counters = SpreadWords<Avx2>;
  static constexpr int64_t kLanes = 8;

  static Batch fused(Batch a, Batch b, Batch c) { return _mm256_fmadd_ps(a, b, c); }
  static Batch root(Batch a) { return _mm256_sqrt_ps(a); }
  static Batch quotient(Batch a, Batch b) { return _mm256_div_ps(a, b); }
  static Batch least(Batch a, Batch b) { return _mm256_min_ps(a, b); }  // b where one is NaN
  static Batch greatest(Batch a, Batch b) { return _mm256_max_ps(a, b); }
  static Mask is_nan(Batch a) { return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
  static Mask is_zero(Batch a) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_EQ_OQ));
  }
  static WordBatch bits_of(Batch a) { return _mm256_castps_si256(a); }
  static WordBatch whole(Batch a) { return _mm256_cvttps_epi32(a); }

  static Batch float_of(WordBatch a) { return _mm256_castsi256_ps(a); }
  static Batch signed_float(WordBatch a) { return _mm256_cvtepi32_ps(a); }
  static WordBatch choose(Mask where, WordBatch yes, WordBatch no) {
    return _mm256_blendv_epi8(no, yes, where);
  }
  static WordBatch greatest(WordBatch a, WordBatch b) { return _mm256_max_epu32(a, b); }
  template <int kBits>
  static WordBatch shift_left(WordBatch a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  static WordBatch shift_right(WordBatch a) {
    return _mm256_srli_epi32(a, kBits);
  }
  static WordBatch product(WordBatch a, WordBatch b) { return _mm256_mul_epu32(a, b); }
  static WordBatch upper_halves(WordBatch a) { return _mm256_srli_epi64(a, 32); }
  static Word joined(Counters a) {
    return WordBatch(_mm256_blend_epi32(a.even, _mm256_slli_epi64(a.odd, 32), 0xAA));
  }
  static uint32_t largest(Word a) {
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(a.x), _mm256_extracti128_si256(a.x, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4E));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xB1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(x));
  }
  static Counters lane_numbers() {
    return {_mm256_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0), _mm256_setr_epi32(1, 0, 3, 0, 5, 0, 7, 0)};
  }

  static Word load_words(const uint16_t* x) { return WordBatch(_mm256_cvtepu16_epi32(halves(x))); }
  static Word load_words(const uint8_t* x) {
    return WordBatch(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))));
  }
  static Word load_words(const int8_t* x) {
    return WordBatch(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))));
  }
  /// The words must fit.
  static void store_words(uint16_t* to, Word x) { keep(to, packed(x.x)); }
  static void stream_words(uint16_t* to, Word x) { stream(to, packed(x.x)); }
  static void store_words(uint8_t* to, Word x) {
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(x.x), _mm256_extracti128_si256(x.x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(packed, packed));
  }

  static Value load(const float* x) { return Batch(_mm256_loadu_ps(x)); }
  static Value load(const bf16* x) {
    return Batch(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(x)), 16)));
  }
  static Value load(const f16* x) { return Batch(_mm256_cvtph_ps(halves(x))); }

  static void store(float* to, Value x) { _mm256_storeu_ps(to, x.x); }
  static void store_weight(float* to, Value x) { store(to, x); }
  static void stream_weight(float* to, Value x) { _mm256_stream_ps(to, x.x); }
  template <class T>
  static void store_weight(T* to, Value x) {
    keep(to, rounded(to, x));
  }
  template <class T>
  static void stream_weight(T* to, Value x) {
    stream(to, rounded(to, x));
  }
  static void fence() { _mm_sfence(); }
  /// Half away from zero; NaN keeps its upper bits and becomes quiet.
  static __m128i rounded(const bf16*, Value value) {
    const __m256 x = value.x;
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, is_nan);
    return packed(words);
  }
  /// Nearest even; every NaN becomes sign | 0x7E00.
  static __m128i rounded(const f16*, Value value) {
    const __m256 x = value.x;
    const __m128i rounded = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i sign = _mm_and_si128(rounded, _mm_set1_epi16(static_cast<int16_t>(0x8000)));
    const __m128i quiet = _mm_or_si128(sign, _mm_set1_epi16(0x7E00));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m128i mask = _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
    return _mm_blendv_epi8(rounded, quiet, mask);
  }

 private:
  /// The words as 16 bits each; they must fit.
  static __m128i packed(__m256i words) {
    const __m256i twice = _mm256_packus_epi32(words, words);  // within each half: 0-3 0-3 | 4-7 4-7
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(twice, 0x08));
  }
  static __m128i halves(const void* x) { return _mm_loadu_si128(static_cast<const __m128i*>(x)); }
  static void stream(void* to, __m128i x) { _mm_stream_si128(static_cast<__m128i*>(to), x); }
  static void keep(void* to, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(to), x); }
};

constexpr AdamKernels kKernels = adam_table<Avx2>();

}  // namespace

const AdamKernels* avx2_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const AdamKernels* avx2_kernels() { return nullptr; }
}  // namespace tandem

#endif
