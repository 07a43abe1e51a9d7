// Compiled with -mavx2 -mfma -mf16c on x86-64; nothing here may be called on a CPU without them.
#include "cpu_adam/isa/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "cpu_adam/isa/adam_text.h"
#include "cpu_adam/isa/convert_avx2.h"
#include "cpu_adam/isa/in_two.h"
#include "cpu_adam/isa/lanes.h"

namespace tandem {

namespace {

/// One register.
struct Eight {
  using Batch = xsimd::batch<float, xsimd::fma3<xsimd::avx2>>;
  using WordBatch = xsimd::batch<uint32_t, xsimd::fma3<xsimd::avx2>>;
  using Mask = __m256i;  // all bits of a lane

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
};

/// Two registers at a time, as narrower integers fill one only together.
struct Avx2 : InTwo<Eight> {
  using Value = Lanes<Avx2>;
  using Word = WordLanes<Avx2>;
  using Counters = SpreadWords<Avx2>;
  using Four = WordLanes<Eight>;
  static constexpr int64_t kLanes = 16;

  static bool any_nan(Value a) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a.x.low, a.x.high, _CMP_UNORD_Q)) != 0;
  }

  static constexpr int64_t kCounters = 8;
  static Counters counter_numbers() {
    return WordBatch(_mm256_setr_epi32(0, 0, 1, 0, 2, 0, 3, 0), _mm256_setr_epi32(4, 0, 5, 0, 6, 0, 7, 0));
  }
  static void store_halves(Word* to, Counters a) {
    const __m256i halves =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, -1, -1, 2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1));
    *to = WordBatch(_mm256_shuffle_epi8(a.x.low, halves), _mm256_shuffle_epi8(a.x.high, halves));
  }

  static Four four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const auto word = [](uint32_t x) { return static_cast<int>(x); };
    return Four(_mm256_broadcastsi128_si256(_mm_setr_epi32(word(a), word(b), word(c), word(d))));
  }
  static Four largest_of_four(Word a, Word b, Word c, Word d) {
    const __m256i ab = largest_of_two(largest(a), largest(b)), cd = largest_of_two(largest(c), largest(d));
    const __m256i all = _mm256_max_epu32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return Four(_mm256_max_epu32(all, _mm256_permute2x128_si256(all, all, 0x01)));
  }
  template <int k>
  static Word one_of_four(Four a) {
    const Eight::WordBatch one = _mm256_shuffle_epi32(a.x, k * 0x55);
    return WordBatch(one, one);
  }
  static void store_four(uint16_t* first, uint16_t* second, Four a) {
    const __m128i words = _mm256_castsi256_si128(a.x), packed = _mm_packus_epi32(words, words);
    _mm_storeu_si32(first, packed);
    _mm_storeu_si32(second, _mm_srli_epi64(packed, 32));
  }

  static Word load_words(const uint16_t* x) {
    return WordBatch(_mm256_cvtepu16_epi32(eight_halves(x)), _mm256_cvtepu16_epi32(eight_halves(x + 8)));
  }
  static Word load_words(const uint8_t* x) {
    return WordBatch(_mm256_cvtepu8_epi32(quarters(x)), _mm256_cvtepu8_epi32(quarters(x + 8)));
  }
  static Word load_words(const int8_t* x) {
    return WordBatch(_mm256_cvtepi8_epi32(quarters(x)), _mm256_cvtepi8_epi32(quarters(x + 8)));
  }
  static void store_words(uint16_t* to, Word x) { keep(to, sixteen_halves(x.x.low, x.x.high)); }
  static void stream_words(uint16_t* to, Word x) { stream(to, sixteen_halves(x.x.low, x.x.high)); }
  static void store_words(uint8_t* to, Word x) {
    const __m256i first = _mm256_setr_epi32(0x0C080400, -1, -1, -1, 0x0C080400, -1, -1, -1);  // bytes
    const __m256i fours =
        _mm256_unpacklo_epi32(_mm256_shuffle_epi8(x.x.low, first), _mm256_shuffle_epi8(x.x.high, first));
    const __m256i all = _mm256_permutevar8x32_epi32(fours, _mm256_setr_epi32(0, 4, 1, 5, 1, 1, 1, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(all));
  }

  template <class T>
  static Value load(const T* x) {
    return Batch(eight_floats(x), eight_floats(x + 8));
  }

  static void store(float* to, Value x) {
    _mm256_storeu_ps(to, x.x.low);
    _mm256_storeu_ps(to + 8, x.x.high);
  }
  template <class V>
  static void store_weight(float* to, V x) {
    store(to, x);
  }
  template <class V>
  static void stream_weight(float* to, V x) {
    const Batch batch = Value(x).x;
    _mm256_stream_ps(to, batch.low);
    _mm256_stream_ps(to + 8, batch.high);
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
  static __m256i largest(Word a) { return _mm256_max_epu32(a.x.low, a.x.high); }
  static __m256i largest_of_two(__m256i a, __m256i b) {
    return _mm256_max_epu32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  }
  static __m256i rounded(const bf16*, Value x) {
    return sixteen_halves(words_of_bf16(x.x.low), words_of_bf16(x.x.high));
  }
  static __m256i rounded(const bf16*, Number<Value> n) {
    return sixteen_halves(bf16_of_numbers(n.x.x.low), bf16_of_numbers(n.x.x.high));
  }
  static __m256i rounded(const f16*, Value x) {
    return _mm256_set_m128i(rounded_f16(x.x.high), rounded_f16(x.x.low));
  }
  static __m256i rounded(const f16*, Number<Value> n) {
    return _mm256_set_m128i(f16_of_numbers(n.x.x.high), f16_of_numbers(n.x.x.low));
  }
  static __m128i quarters(const void* x) { return _mm_loadl_epi64(static_cast<const __m128i*>(x)); }
  static void stream(void* to, __m256i x) { _mm256_stream_si256(static_cast<__m256i*>(to), x); }
  static void keep(void* to, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
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
