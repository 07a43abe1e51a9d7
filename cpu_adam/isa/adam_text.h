#pragma once
// The one text of the Adam kernels. Simd is an instruction set: a value type Value of kLanes floats and a
// type Word of as many words (core/math/value_ops.h), any_nan(Value), load(const T*), store(float*, Value),
// store_weight(T*, V), which rounds a Value or a Number<Value> like round_weight<T>, load_words and
// store_words for planes of narrower integers (8 bits: upper ones are cut off; 16: the words are below 2^16),
// stream_weight and stream_words past the caches with a fence() for them; for random bits a type Counters of
// kCounters words that have products of 64 bits, counter_numbers() and store_halves(Word*, Counters), the
// 2 * kCounters halves as words; and for groups a type Four of four words, four(a, b, c, d),
// largest_of_four(a, b, c, d) of the lanes of four Words, one_of_four<k>() as a Word, and
// store_four(first, second, a), their low 16 bits, two and two. Its class lives in an unnamed namespace of
// its own file, so everything here that is compiled with that file's flags has internal linkage: the linker
// can't hand it to a caller on a smaller CPU.
#include <cstring>
#include <utility>

#include "cpu_adam/isa/state_text.h"

namespace tandem {

/// What a kernel is made for.
template <class SimdType, StateFormat kFormat, class GradType, class WeightType, Decay kDecay>
struct AdamKind {
  using Simd = SimdType;
  using Grad = GradType;
  using Weight = WeightType;
  static constexpr MasterFormat master = kFormat.master;
  static constexpr MomentFormat moments = kFormat.moments;
  static constexpr Decay decay = kDecay;
  static constexpr bool draws = stochastic(kFormat);
  static constexpr bool beside_weights = row_of(kFormat.master).beside_weights;
  /// Where one of the two is compact, and little arithmetic: 8 to 20 % by measurement, and nothing elsewhere.
  static constexpr bool prefetches =
      moments != MomentFormat::int8 && (master == MasterFormat::fp32) != (moments == MomentFormat::fp32);
  /// False where every plane takes NaN as any other value.
  static constexpr bool asks_for_nan =
      master != MasterFormat::fp32 || moments == MomentFormat::bf16 || !std::is_same_v<Weight, float>;
};

/// The random bits of one block: of[k] are those of its k-th kLanes elements.
template <class Simd>
struct BlockWords {
  using Word = typename Simd::Word;
  Word of[static_cast<size_t>(kDrawBlock / Simd::kLanes)];
};
template <class Simd>
[[gnu::always_inline]] inline void draw_block(const Draws<typename Simd::Counters>& draws, int64_t block,
                                              BlockWords<Simd>& words) {
  using Counters = typename Simd::Counters;
  for (int64_t j = 0; j < kDrawCounters; j += Simd::kCounters) {
    const auto four = draw(draws, block, Simd::counter_numbers() + Counters(static_cast<uint32_t>(j)));
    for (int64_t k = 0; k < 4; ++k) Simd::store_halves(words.of + (16 * k + 2 * j) / Simd::kLanes, four.x[k]);
  }
}

/// Sums by sixteen lanes, whatever the vectors' width, so that all instruction sets give the same bits.
template <class Simd>
class SumLanes {
 public:
  using Value = typename Simd::Value;
  /// The k-th vector of a block.
  [[gnu::always_inline]] void add(int64_t k, Value grad, Value moment, Value update, Value master) {
    const auto vector = static_cast<size_t>(k % kVectors);
    const std::pair<Value, Value> factors[] = {
        {grad, moment}, {grad, grad}, {moment, moment}, {update, update}, {master, master}};
    for (size_t i = 0; i < kSums; ++i)
      lanes_[i][vector] = fused(factors[i].first, factors[i].second, lanes_[i][vector]);
  }
  void add_to(AdamSums& sums) const {
    double* const out[] = {&sums.grad_moment, &sums.grad_squares, &sums.moment_squares, &sums.update_squares,
                           &sums.master_squares};
    for (size_t i = 0; i < kSums; ++i)
      for (const Value& vector : lanes_[i]) {
        float lanes[Simd::kLanes];
        Simd::store(lanes, vector);
        for (const float lane : lanes) *out[i] += static_cast<double>(lane);
      }
  }

 private:
  static constexpr size_t kSums = 5, kVectors = 16 / Simd::kLanes;
  Value lanes_[kSums][kVectors] = {};
};

/// Elements that planes are asked for ahead of time.
constexpr int64_t kPrefetchAhead = 512;

/// Asks for the planes of the block from element `first` on, be it behind the range: mostly, the next range
/// lies there. Planes of unlike element sizes aren't followed in time by the hardware alone.
template <class Kind>
[[gnu::always_inline]] inline void prefetch_block(const AdamRange& r, int64_t first) {
  constexpr size_t kLine = 64;
  const auto ask = [&](const void* plane, PlaneShape shape) __attribute__((always_inline)) {
    const auto bytes = [&](int64_t n) { return shape.bytes * static_cast<size_t>(n / shape.elements); };
    const auto* block = static_cast<const std::byte*>(plane) + bytes(first);
    for (size_t at = 0; at < bytes(kDrawBlock); at += kLine) __builtin_prefetch(block + at);
  };
  ask(r.master, row_of(Kind::master).plane);
  ask(r.moment1, row_of(Kind::moments).plane);
  ask(r.moment2, row_of(Kind::moments).plane);
  ask(r.grad, {sizeof(typename Kind::Grad), 1});
  if constexpr (Kind::beside_weights) ask(r.upper_in, {sizeof(uint16_t), 1});
}

/// The kDrawBlock elements from element `first` of the range; what close_block needs goes into held.
template <class Kind>
[[gnu::always_inline]] inline void update_block(const AdamRange& r, int64_t first,
                                                const AdamConstants<typename Kind::Simd::Value>& constants,
                                                const BlockWords<typename Kind::Simd>& random,
                                                HeldMoments<typename Kind::Simd, Kind::moments>& held,
                                                SumLanes<typename Kind::Simd>* sums) {
  using Simd = typename Kind::Simd;
  using Value = typename Simd::Value;
  BlockMoments<Simd, Kind::moments> moments;
#pragma GCC unroll 2
  for (int64_t group = 0; group < kDrawBlock / kStateGroup; ++group) {
    moments.open_group(r, first + group * kStateGroup);
#pragma GCC unroll 2
    for (int64_t j = 0; j < kVectorsOfGroup<Simd>; ++j) {
      const int64_t k = group * kVectorsOfGroup<Simd> + j, i = first + k * Simd::kLanes;
      const Value before = load_master<Simd, Kind::master>(r, i);
      const Value g = Simd::load(at<typename Kind::Grad>(r.grad, i)), m_before = moments.first(r, i);
      Value p = before, m = m_before, v = moments.second(r, i);
      adam_update<Kind::decay>(p, m, v, g, constants);
      if (sums != nullptr) sums->add(k, g * constants.grad_scale, m_before, p - before, p);
      const auto keep = [&](auto new_p, auto new_m, auto new_v) __attribute__((always_inline)) {
        store_master<Simd, Kind::master>(r, i, new_p, random.of[k]);
        publish<Simd, Kind::master, typename Kind::Weight>(r, i, new_p, before);
        moments.keep(r, i, k, new_m, new_v, random.of[k], held);
      };
      // p follows from m and v: where it isn't NaN, they aren't.
      if (Kind::asks_for_nan && Simd::any_nan(p)) [[unlikely]]
        keep(p, m, v);
      else
        keep(Number<Value>(p), Number<Value>(m), Number<Value>(v));
    }
    moments.close_group(group);
  }
  moments.close(held);
}

/// Whole blocks: n is a multiple of kDrawBlock. Two chains are long, a block's random bits and the way from
/// its largest magnitudes to its codes: bits are drawn a block ahead, and moments in groups coded a block
/// behind, so that the arithmetic between hides both.
template <class Kind>
inline void adam_blocks(const AdamRange& range, const AdamScalars& scalars) {
  using Simd = typename Kind::Simd;
  constexpr bool kGroups = Kind::moments == MomentFormat::int8;
  // Copies, which no store can reach: they stay in registers.
  const AdamRange r = range;
  const AdamConstants<typename Simd::Value> constants(scalars);
  const Draws<typename Simd::Counters> draws(r.key);
  BlockWords<Simd> words[3];
  HeldMoments<Simd, Kind::moments> moments[2];
  BlockWords<Simd>*last_words = words, *now_words = words + 1, *next_words = words + 2;
  auto *last = moments, *now = moments + 1;
  SumLanes<Simd> sums;
  if constexpr (Kind::draws) draw_block<Simd>(draws, r.draw_block, *next_words);
  for (int64_t i = 0; i < r.n; i += kDrawBlock) {
    BlockWords<Simd>* const free = last_words;
    last_words = now_words, now_words = next_words, next_words = free;
    std::swap(last, now);
    if constexpr (Kind::draws) draw_block<Simd>(draws, r.draw_block + i / kDrawBlock + 1, *next_words);
    if constexpr (Kind::prefetches) prefetch_block<Kind>(r, i + kPrefetchAhead);
    const bool sampled = r.sums != nullptr && (r.draw_block + i / kDrawBlock) % kSampledBlocks == 0;
    update_block<Kind>(r, i, constants, *now_words, *now, sampled ? &sums : nullptr);
    if constexpr (kGroups)
      if (i > 0) code_block<Simd>(r, i - kDrawBlock, *last, last_words->of);
  }
  if constexpr (kGroups)
    if (r.n > 0) code_block<Simd>(r, r.n - kDrawBlock, *now, now_words->of);
  if (r.sums != nullptr) sums.add_to(*r.sums);
}

/// A copy of one block's planes, padded with zeros, for a range that ends within a block.
template <class Kind>
class AdamTail {
 public:
  /// The last `rest` elements of r, from element `first`.
  AdamTail(const AdamRange& r, int64_t first, int64_t rest) : all_(r), first_(first), rest_(rest) {
    tail_ = {
        master_,    moment1_, moment2_,   scale1_,      scale2_,    grad_, upper_in_,
        upper_out_, weight_,  kDrawBlock, r.prediction, r.predicts, r.key, r.draw_block + first / kDrawBlock,
        false,      r.sums};
    if (r.upper_out == nullptr) tail_.upper_out = nullptr;
    copy(master_, r.master, kMaster, true);
    copy(moment1_, r.moment1, kMoment, true);
    copy(moment2_, r.moment2, kMoment, true);
    copy(scale1_, r.scale1, kScale, true);
    copy(scale2_, r.scale2, kScale, true);
    copy(grad_, r.grad, {sizeof(typename Kind::Grad), 1}, true);
    copy(upper_in_, r.upper_in, kUpper, true);
  }
  [[nodiscard]] const AdamRange& range() const { return tail_; }
  void write_back() {
    copy(master_, all_.master, kMaster, false);
    copy(moment1_, all_.moment1, kMoment, false);
    copy(moment2_, all_.moment2, kMoment, false);
    copy(scale1_, all_.scale1, kScale, false);
    copy(scale2_, all_.scale2, kScale, false);
    if (all_.upper_out != nullptr) copy(upper_out_, all_.upper_out, kUpper, false);
    copy(weight_, all_.weight_out, {sizeof(typename Kind::Weight), 1}, false);
  }

 private:
  static constexpr PlaneShape kMaster = row_of(Kind::master).plane, kMoment = row_of(Kind::moments).plane,
                              kScale = row_of(Kind::moments).scales,
                              kUpper{Kind::beside_weights ? sizeof(uint16_t) : 0, 1};

  void copy(void* mine, const void* plane, PlaneShape shape, bool in) const {
    if (shape.bytes == 0) return;
    const auto bytes = shape.bytes * static_cast<size_t>((rest_ + shape.elements - 1) / shape.elements);
    auto* there = static_cast<std::byte*>(const_cast<void*>(plane)) +
                  shape.bytes * static_cast<size_t>(first_ / shape.elements);
    if (in)
      std::memcpy(mine, there, bytes);
    else
      std::memcpy(there, mine, bytes);
  }

  const AdamRange& all_;
  int64_t first_, rest_;
  AdamRange tail_;
  float master_[kDrawBlock] = {}, moment1_[kDrawBlock] = {}, moment2_[kDrawBlock] = {},
        weight_[kDrawBlock] = {};
  float grad_[kDrawBlock] = {};
  uint16_t scale1_[kDrawBlock / kStateGroup] = {}, scale2_[kDrawBlock / kStateGroup] = {};
  uint16_t upper_in_[kDrawBlock] = {}, upper_out_[kDrawBlock] = {};
};

template <class Kind>
void adam_range(const AdamRange& range, const AdamScalars& scalars) {
  AdamRange whole = range;
  whole.n = range.n / kDrawBlock * kDrawBlock;
  adam_blocks<Kind>(whole, scalars);
  if (range.stream) Kind::Simd::fence();
  if (whole.n == range.n) return;
  AdamTail<Kind> tail(range, whole.n, range.n - whole.n);
  adam_blocks<Kind>(tail.range(), scalars);
  tail.write_back();
}

/// In the order of Decay; nulls where the format can't stand beside these weights.
template <class Simd, StateFormat format, class Grad, class Weight>
constexpr std::array<AdamKernel, kDecays> adam_row() {
  if constexpr (row_of(format.master).beside_weights && !std::is_same_v<Weight, bf16>)
    return {};
  else
    return {adam_range<AdamKind<Simd, format, Grad, Weight, Decay::none>>,
            adam_range<AdamKind<Simd, format, Grad, Weight, Decay::l2>>,
            adam_range<AdamKind<Simd, format, Grad, Weight, Decay::decoupled>>};
}

/// In the order of kAdamTypes.
template <class Simd, StateFormat format>
constexpr AdamFormatKernels adam_format() {
  return {adam_row<Simd, format, float, float>(), adam_row<Simd, format, bf16, bf16>(),
          adam_row<Simd, format, f16, f16>(), adam_row<Simd, format, float, bf16>(),
          adam_row<Simd, format, float, f16>()};
}

template <class Simd, size_t... i>
constexpr AdamKernels adam_table(std::index_sequence<i...>) {
  return {{adam_format<Simd, all_state_formats()[i]>()...}};
}
template <class Simd>
constexpr AdamKernels adam_table() {
  return adam_table<Simd>(std::make_index_sequence<all_state_formats().size()>());
}

}  // namespace tandem
