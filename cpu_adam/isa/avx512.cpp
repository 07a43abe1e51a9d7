// Compiled with -mavx512f -mavx512bw -mavx512vl, beside avx2.cpp's flags, on x86-64; nothing here may be
// called on a CPU without them.
#include "cpu_adam/isa/kernels.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#include "cpu_adam/isa/adam_text.h"
#include "cpu_adam/isa/convert_avx512.h"
#include "cpu_adam/isa/lanes.h"

namespace tandem {

namespace {

struct Avx512 {
  using Batch = xsimd::batch<float, xsimd::avx512f>;
  using WordBatch = xsimd::batch<uint32_t, xsimd::avx512f>;
  using Value = Lanes<Avx512>;
  using Word = WordLanes<Avx512>;
  using Mask = __mmask16;
  using Counters = SpreadWords<Avx512>;
  static constexpr int64_t kLanes = 16;

  static Batch fused(Batch a, Batch b, Batch c) { return _mm512_fmadd_ps(a, b, c); }
  static Batch root(Batch a) { return _mm512_sqrt_ps(a); }
  static Batch quotient(Batch a, Batch b) { return _mm512_div_ps(a, b); }
  static Mask is_nan(Batch a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
  static Mask at_least(WordBatch a, WordBatch b) { return _mm512_cmpge_epu32_mask(a, b); }
  static WordBatch bits_of(Batch a) { return _mm512_castps_si512(a); }

  static Batch float_of(WordBatch a) { return _mm512_castsi512_ps(a); }
  static WordBatch choose(Mask where, WordBatch yes, WordBatch no) {
    return _mm512_mask_mov_epi32(no, where, yes);
  }
  static WordBatch least(WordBatch a, WordBatch b) { return _mm512_min_epu32(a, b); }
  static WordBatch greatest(WordBatch a, WordBatch b) { return _mm512_max_epu32(a, b); }
  template <int kBits>
  static WordBatch shift_left(WordBatch a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static WordBatch shift_right(WordBatch a) {
    return _mm512_srli_epi32(a, kBits);
  }
  static WordBatch product(WordBatch a, WordBatch b) { return _mm512_mul_epu32(a, b); }
  static WordBatch upper_halves(WordBatch a) { return _mm512_srli_epi64(a, 32); }
  static bool any_nan(Value a) { return is_nan(a.x) != 0; }
  using Four = Word;
  static constexpr int64_t kCounters = 8;
  static Counters counter_numbers() {
    return WordBatch(_mm512_setr_epi32(0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0));
  }
  static void store_halves(Word* to, Counters a) {
    const __m512i halves =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, -1, -1, 2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1));
    *to = WordBatch(_mm512_shuffle_epi8(a.x, halves));
  }

  static Four four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const auto word = [](uint32_t x) { return static_cast<int>(x); };
    return WordBatch(_mm512_set4_epi32(word(d), word(c), word(b), word(a)));
  }
  static Four largest_of_four(Word a, Word b, Word c, Word d) {
    const __m512i ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a.x, b.x), _mm512_unpackhi_epi32(a.x, b.x));
    const __m512i cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c.x, d.x), _mm512_unpackhi_epi32(c.x, d.x));
    __m512i all = _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    all = _mm512_max_epu32(all, _mm512_shuffle_i32x4(all, all, 0x4E));
    return WordBatch(_mm512_max_epu32(all, _mm512_shuffle_i32x4(all, all, 0xB1)));
  }
  template <int k>
  static Word one_of_four(Four a) {
    return WordBatch(_mm512_shuffle_epi32(a.x, static_cast<_MM_PERM_ENUM>(k * 0x55)));
  }
  static void store_four(uint16_t* first, uint16_t* second, Four a) {
    const __m128i words = _mm512_castsi512_si128(a.x), packed = _mm_packus_epi32(words, words);
    _mm_storeu_si32(first, packed);
    _mm_storeu_si32(second, _mm_srli_epi64(packed, 32));
  }

  static Word load_words(const uint16_t* x) { return WordBatch(_mm512_cvtepu16_epi32(sixteen_halves(x))); }
  static Word load_words(const uint8_t* x) { return WordBatch(_mm512_cvtepu8_epi32(quarters(x))); }
  static Word load_words(const int8_t* x) { return WordBatch(_mm512_cvtepi8_epi32(quarters(x))); }
  /// The low bits of each word.
  static void store_words(uint16_t* to, Word x) { keep(to, _mm512_cvtepi32_epi16(x.x)); }
  static void stream_words(uint16_t* to, Word x) { stream(to, _mm512_cvtepi32_epi16(x.x)); }
  static void store_words(uint8_t* to, Word x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x.x));
  }

  template <class T>
  static Value load(const T* x) {
    return Batch(sixteen_floats(x));
  }

  static void store(float* to, Value x) { _mm512_storeu_ps(to, x.x); }
  template <class V>
  static void store_weight(float* to, V x) {
    store(to, x);
  }
  template <class V>
  static void stream_weight(float* to, V x) {
    _mm512_stream_ps(to, Value(x).x);
  }
  template <class T, class V>
  static void store_weight(T* to, V x) {
    keep(to, rounded(to, x));
  }
  template <class T, class V>
  static void stream_weight(T* to, V x) {
    stream(to, rounded(to, x));
  }
  static void fence() { _mm_sfence(); }

 private:
  static __m256i rounded(const bf16*, Value x) { return rounded_bf16(x.x); }
  static __m256i rounded(const bf16*, Number<Value> n) { return bf16_of_numbers(n.x.x); }
  static __m256i rounded(const f16*, Value x) { return rounded_f16(x.x); }
  static __m256i rounded(const f16*, Number<Value> n) { return f16_of_numbers(n.x.x); }
  static __m128i quarters(const void* x) { return _mm_loadu_si128(static_cast<const __m128i*>(x)); }
  static void stream(void* to, __m256i x) { _mm256_stream_si256(static_cast<__m256i*>(to), x); }
  static void keep(void* to, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
};

constexpr AdamKernels kKernels = adam_table<Avx512>();

}  // namespace

const AdamKernels* avx512_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const AdamKernels* avx512_kernels() { return nullptr; }
}  // namespace tandem

#endif
