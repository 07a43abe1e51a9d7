// Compiled with -mavx2 -mfma -mf16c on x86-64; nothing here may be called on a CPU without them.
#include "cpu_adam/isa/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "cpu_adam/isa/adam_text.h"
#include "cpu_adam/isa/convert_avx2.h"
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
  static Mask is_nan(Batch a) { return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
  static Mask at_least(WordBatch a, WordBatch b) { return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a); }
  static WordBatch bits_of(Batch a) { return _mm256_castps_si256(a); }

  static Batch float_of(WordBatch a) { return _mm256_castsi256_ps(a); }
  static WordBatch choose(Mask where, WordBatch yes, WordBatch no) {
    return _mm256_blendv_epi8(no, yes, where);
  }
  static WordBatch least(WordBatch a, WordBatch b) { return _mm256_min_epu32(a, b); }
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
  using Four = Word;
  static constexpr int64_t kCounters = 4;
  static Counters counter_numbers() { return WordBatch(_mm256_setr_epi32(0, 0, 1, 0, 2, 0, 3, 0)); }
  static void store_halves(Word* to, Counters a) {
    const __m256i halves =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, -1, -1, 2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1));
    *to = WordBatch(_mm256_shuffle_epi8(a.x, halves));
  }

  static Four four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const auto word = [](uint32_t x) { return static_cast<int>(x); };
    return WordBatch(_mm256_broadcastsi128_si256(_mm_setr_epi32(word(a), word(b), word(c), word(d))));
  }
  static Four largest_of_four(Word a, Word b, Word c, Word d) {
    const __m256i ab = _mm256_max_epu32(_mm256_unpacklo_epi32(a.x, b.x), _mm256_unpackhi_epi32(a.x, b.x));
    const __m256i cd = _mm256_max_epu32(_mm256_unpacklo_epi32(c.x, d.x), _mm256_unpackhi_epi32(c.x, d.x));
    const __m256i all = _mm256_max_epu32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return WordBatch(_mm256_max_epu32(all, _mm256_permute2x128_si256(all, all, 0x01)));
  }
  template <int k>
  static Word one_of_four(Four a) {
    return WordBatch(_mm256_shuffle_epi32(a.x, k * 0x55));
  }
  static void store_four(uint16_t* first, uint16_t* second, Four a) {
    const __m128i words = _mm256_castsi256_si128(a.x), packed = _mm_packus_epi32(words, words);
    _mm_storeu_si32(first, packed);
    _mm_storeu_si32(second, _mm_srli_epi64(packed, 32));
  }

  static Word load_words(const uint16_t* x) { return WordBatch(_mm256_cvtepu16_epi32(eight_halves(x))); }
  static Word load_words(const uint8_t* x) {
    return WordBatch(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))));
  }
  static Word load_words(const int8_t* x) {
    return WordBatch(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))));
  }
  /// The low bits of each word.
  static void store_words(uint16_t* to, Word x) { keep(to, packed_words(x.x)); }
  static void stream_words(uint16_t* to, Word x) { stream(to, packed_words(x.x)); }
  static void store_words(uint8_t* to, Word x) {
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m256i fours = _mm256_shuffle_epi8(x.x, first);
    const __m256i eight = _mm256_permutevar8x32_epi32(fours, _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(eight));
  }

  template <class T>
  static Value load(const T* x) {
    return Batch(eight_floats(x));
  }

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

 private:
  static __m128i rounded(const bf16*, Value x) { return rounded_bf16(x.x); }
  static __m128i rounded(const f16*, Value x) { return rounded_f16(x.x); }
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
