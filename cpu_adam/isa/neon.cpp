// NEON is part of aarch64: no flags.
#include "cpu_adam/isa/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "cpu_adam/isa/adam_text.h"
#include "cpu_adam/isa/convert_neon.h"
#include "cpu_adam/isa/lanes.h"

namespace tandem {

namespace {

struct Neon {
  using Batch = xsimd::batch<float, xsimd::neon64>;
  using WordBatch = xsimd::batch<uint32_t, xsimd::neon64>;
  using Value = Lanes<Neon>;
  using Word = WordLanes<Neon>;
  using Counters = Word;
  using Mask = uint32x4_t;  // all bits of a lane
  struct Product {
    uint32x4_t high, low;
  };
  static constexpr int64_t kLanes = 4;

  static Batch fused(Batch a, Batch b, Batch c) { return Batch(vfmaq_f32(c, a, b)); }
  static Batch root(Batch a) { return Batch(vsqrtq_f32(a)); }
  static Batch quotient(Batch a, Batch b) { return Batch(vdivq_f32(a, b)); }
  static Mask is_nan(Batch a) { return vmvnq_u32(vceqq_f32(a, a)); }
  static Mask at_least(WordBatch a, WordBatch b) { return vcgeq_u32(a, b); }
  static WordBatch bits_of(Batch a) { return WordBatch(vreinterpretq_u32_f32(a)); }

  static Batch float_of(WordBatch a) { return Batch(vreinterpretq_f32_u32(a)); }
  static WordBatch choose(Mask where, WordBatch yes, WordBatch no) {
    return WordBatch(vbslq_u32(where, yes, no));
  }
  static WordBatch least(WordBatch a, WordBatch b) { return WordBatch(vminq_u32(a, b)); }
  static WordBatch greatest(WordBatch a, WordBatch b) { return WordBatch(vmaxq_u32(a, b)); }
  template <int kBits>
  static WordBatch shift_left(WordBatch a) {
    return WordBatch(vshlq_n_u32(a, kBits));
  }
  template <int kBits>
  static WordBatch shift_right(WordBatch a) {
    return WordBatch(vshrq_n_u32(a, kBits));
  }
  static Product wide_product(WordBatch a, WordBatch b) {
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b)));
    const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_u32(a, b));
    return {vuzp2q_u32(first, second), vuzp1q_u32(first, second)};
  }
  static bool any_nan(Value a) { return vminvq_u32(vceqq_f32(a.x, a.x)) == 0; }
  using Four = Word;
  static constexpr int64_t kCounters = 4;
  static Counters counter_numbers() { return four(0, 1, 2, 3); }
  static void store_halves(Word* to, Counters a) {
    const uint16x8_t halves = vreinterpretq_u16_u32(a.x);
    to[0] = WordBatch(vmovl_u16(vget_low_u16(halves)));
    to[1] = WordBatch(vmovl_high_u16(halves));
  }

  static Four four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t words[] = {a, b, c, d};
    return WordBatch(vld1q_u32(words));
  }
  static Four largest_of_four(Word a, Word b, Word c, Word d) {
    return WordBatch(vpmaxq_u32(vpmaxq_u32(a.x, b.x), vpmaxq_u32(c.x, d.x)));
  }
  template <int k>
  static Word one_of_four(Four a) {
    return WordBatch(vdupq_laneq_u32(a.x, k));
  }
  static void store_four(uint16_t* first, uint16_t* second, Four a) {
    const uint32x2_t words = vreinterpret_u32_u16(vmovn_u32(a.x));
    const uint32_t low = vget_lane_u32(words, 0), high = vget_lane_u32(words, 1);
    std::memcpy(first, &low, sizeof low);
    std::memcpy(second, &high, sizeof high);
  }

  static Word load_words(const uint16_t* x) { return WordBatch(vmovl_u16(four_halves(x))); }
  static Word load_words(const uint8_t* x) {
    const uint8x8_t four = vreinterpret_u8_u32(vdup_n_u32(quarters(x)));
    return WordBatch(vmovl_u16(vget_low_u16(vmovl_u8(four))));
  }
  static Word load_words(const int8_t* x) {
    const int8x8_t four = vreinterpret_s8_u32(vdup_n_u32(quarters(x)));
    return WordBatch(vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(vmovl_s8(four)))));
  }
  /// The low bits of each word.
  static void store_words(uint16_t* to, Word x) { keep(to, vmovn_u32(x.x)); }
  static void store_words(uint8_t* to, Word x) {
    const uint16x4_t half = vmovn_u32(x.x);
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(half, half))), 0);
    std::memcpy(to, &four, sizeof four);
  }

  template <class T>
  static Value load(const T* x) {
    return Batch(four_floats(x));
  }

  static void store(float* to, Value x) { vst1q_f32(to, x.x); }
  static void store_weight(float* to, Value x) { store(to, x); }
  static void store_weight(bf16* to, Value x) { keep(to, rounded_bf16(x.x)); }
  static void store_weight(bf16* to, Number<Value> n) { keep(to, bf16_of_numbers(n.x.x)); }
  static void store_weight(f16* to, Value x) { keep(to, rounded_f16(x.x)); }
  static void store_weight(f16* to, Number<Value> n) { keep(to, f16_of_numbers(n.x.x)); }

  // Plain stores, which the hardware gathers.
  template <class T, class V>
  static void stream_weight(T* to, V x) {
    store_weight(to, x);
  }
  static void stream_words(uint16_t* to, Word x) { store_words(to, x); }
  static void fence() {}

 private:
  static uint32_t quarters(const void* x) {
    uint32_t out;
    std::memcpy(&out, x, sizeof out);
    return out;
  }
  static void keep(void* to, uint16x4_t x) { std::memcpy(to, &x, sizeof x); }
};

constexpr AdamKernels kKernels = adam_table<Neon>();

}  // namespace

const AdamKernels* neon_kernels() { return &kKernels; }

}  // namespace tandem

#else

namespace tandem {
const AdamKernels* neon_kernels() { return nullptr; }
}  // namespace tandem

#endif
