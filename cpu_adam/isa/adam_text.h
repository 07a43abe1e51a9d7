#pragma once
// The one text of the Adam kernels. Simd is an instruction set: a value type Value of kLanes floats and a
// type Word of as many words (core/math/value_ops.h), load(const T*), store(float*, Value), store_weight(T*,
// Value), which rounds like round_weight<T>, load_words and store_words for planes of narrower integers,
// stream_weight and stream_words past the caches with a fence() for them,
// largest(Word); and for random numbers, which need products of 64 bits, a type Counters with lane_numbers()
// and joined(Counters). Its class lives in an unnamed namespace of its own file, so everything
// here that is compiled with that file's flags has internal linkage: the linker can't hand it to a caller on
// a smaller CPU.
#include <cstring>

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
};

/// The random words of one block: of[k] are those of its k-th kLanes elements.
template <class Simd>
struct BlockWords {
  using Word = typename Simd::Word;
  Word of[static_cast<size_t>(kDrawBlock / Simd::kLanes)];
};
template <class Simd>
[[gnu::always_inline]] inline BlockWords<Simd> draw_block(const DrawKey& key, int64_t block) {
  using Counters = typename Simd::Counters;
  BlockWords<Simd> words;
  for (int64_t lane = 0; lane < kDrawLanes; lane += Simd::kLanes) {
    const auto four =
        draw<Counters>(key, block, Simd::lane_numbers() + Counters(static_cast<uint32_t>(lane)));
    for (int64_t k = 0; k < 4; ++k)
      words.of[(k * kDrawLanes + lane) / Simd::kLanes] = Simd::joined(four.x[k]);
  }
  return words;
}

/// One group of kStateGroup elements, from element `first` of the range.
template <class Kind>
[[gnu::always_inline]] inline void adam_group(const AdamRange& r, int64_t first,
                                              const AdamConstants<typename Kind::Simd::Value>& constants,
                                              const typename Kind::Simd::Word* random) {
  using Simd = typename Kind::Simd;
  using Value = typename Simd::Value;
  GroupMoments<Simd, Kind::moments> moments(r, first);
  for (int64_t k = 0; k < kStateGroup / Simd::kLanes; ++k) {
    const int64_t i = first + k * Simd::kLanes;
    const Value before = load_master<Simd, Kind::master>(r, i);
    Value p = before, m = moments.first(r, i), v = moments.second(r, i);
    adam_update<Kind::decay>(p, m, v, Simd::load(at<typename Kind::Grad>(r.grad, i)), constants);
    store_master<Simd, Kind::master>(r, i, p, random[k]);
    publish<Simd, Kind::master, typename Kind::Weight>(r, i, p, before);
    moments.keep(r, i, k, m, v, random[k]);
  }
  moments.close(r, first, random);
}

/// Whole blocks: n is a multiple of kDrawBlock.
template <class Kind>
inline void adam_blocks(const AdamRange& range, const AdamScalars& scalars) {
  using Simd = typename Kind::Simd;
  // Copies, which no store can reach: they stay in registers.
  const AdamRange r = range;
  const AdamConstants<typename Simd::Value> constants(scalars);
  constexpr int64_t kGroups = kDrawBlock / kStateGroup, kVectors = kStateGroup / Simd::kLanes;
  BlockWords<Simd> words{}, next{};
  if constexpr (Kind::draws) next = draw_block<Simd>(r.key, r.draw_block);
  for (int64_t i = 0; i < r.n; i += kDrawBlock) {
    words = next;
    // A block ahead: the rounds are one chain, whose latency the block's own arithmetic hides.
    if constexpr (Kind::draws) next = draw_block<Simd>(r.key, r.draw_block + i / kDrawBlock + 1);
    for (int64_t group = 0; group < kGroups; ++group)
      adam_group<Kind>(r, i + group * kStateGroup, constants, words.of + group * kVectors);
  }
}

/// A copy of one block's planes, padded with zeros, for a range that ends within a block.
template <class Kind>
class AdamTail {
 public:
  /// The last `rest` elements of r, from element `first`.
  AdamTail(const AdamRange& r, int64_t first, int64_t rest) : all_(r), first_(first), rest_(rest) {
    tail_ = {master_,
             moment1_,
             moment2_,
             scale1_,
             scale2_,
             grad_,
             upper_in_,
             upper_out_,
             weight_,
             kDrawBlock,
             r.prediction,
             r.key,
             r.draw_block + first / kDrawBlock,
             false};
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
    copy(upper_out_, all_.upper_out, kUpper, false);
    const bool published = !Kind::beside_weights || all_.prediction != 0;
    copy(weight_, all_.weight_out, {published ? sizeof(typename Kind::Weight) : 0, 1}, false);
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
