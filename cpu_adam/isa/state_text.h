#pragma once
// How the Adam kernels load and store states: core/math/state_codecs.h over the planes of a range. See
// adam_text.h for what Simd is.
#include "cpu_adam/isa/kernels.h"
#include "cpu_adam/isa/number.h"

namespace tandem {

template <class T>
inline T* at(void* plane, int64_t i) {
  return static_cast<T*>(plane) + i;
}
template <class T>
inline const T* at(const void* plane, int64_t i) {
  return static_cast<const T*>(plane) + i;
}

template <class Simd, MasterFormat format>
inline typename Simd::Value load_master(const AdamRange& r, int64_t i) {
  using Value = typename Simd::Value;
  if constexpr (format == MasterFormat::fp32)
    return Simd::load(at<float>(r.master, i));
  else if constexpr (format == MasterFormat::split)
    return split_joined<Value>(Simd::load_words(r.upper_in + i),
                               Simd::load_words(at<const uint16_t>(r.master, i)));
  else
    return ulp8_joined<Value>(Simd::load_words(r.upper_in + i),
                              Simd::load_words(at<const int8_t>(r.master, i)));
}

/// Where nothing is predicted, it is what is published; then it need not be stored beside that.
template <class Simd>
inline void store_upper(const AdamRange& r, int64_t i, typename Simd::Word upper) {
  if (r.upper_out != nullptr) Simd::store_words(r.upper_out + i, upper);
  if (r.predicts) return;
  auto* published = at<uint16_t>(r.weight_out, i);
  if (r.stream)
    Simd::stream_words(published, upper);
  else
    Simd::store_words(published, upper);
}

/// V: Value, or Number<Value>.
template <class Simd, MasterFormat format, class V>
[[gnu::always_inline]] inline void store_master(const AdamRange& r, int64_t i, V p,
                                                typename Simd::Word random) {
  if constexpr (format == MasterFormat::fp32) {
    Simd::store(at<float>(r.master, i), p);
  } else if constexpr (format == MasterFormat::split) {
    store_upper<Simd>(r, i, upper_of(p));
    Simd::store_words(at<uint16_t>(r.master, i), split_low(p));
  } else {
    const V rounded = ulp8_rounded(p, random);
    store_upper<Simd>(r, i, ulp8_upper(rounded));
    Simd::store_words(at<uint8_t>(r.master, i), ulp8_error(rounded));
  }
}

/// What forward reads, of the master as it was computed.
template <class Simd, MasterFormat format, class Weight, class V>
[[gnu::always_inline]] inline void publish(const AdamRange& r, int64_t i, V p, typename Simd::Value before) {
  using Value = typename Simd::Value;
  const auto put = [&](auto x) {
    auto* to = at<Weight>(r.weight_out, i);
    if (r.stream)
      Simd::stream_weight(to, x);
    else
      Simd::store_weight(to, x);
  };
  // Not the prediction by 0: that would turn -0 into 0 and an infinity into NaN.
  if (r.predicts)
    put(predicted(static_cast<Value>(p), before, Value(r.prediction)));
  else if constexpr (!row_of(format).beside_weights)
    put(p);
}

/// A block has two groups.
static_assert(kDrawBlock == 2 * kStateGroup);
template <class Simd>
constexpr int64_t kVectorsOfGroup = kStateGroup / Simd::kLanes;

/// New moments of a block that wait for their groups' scales.
template <class Simd, MomentFormat format>
struct HeldMoments {};
template <class Simd>
struct HeldMoments<Simd, MomentFormat::int8> {
  typename Simd::Value m[2 * kVectorsOfGroup<Simd>], root_v[2 * kVectorsOfGroup<Simd>];
  typename Simd::Four largest;  ///< bits of the largest magnitudes: m of both groups, root_v of both
};

/// The moments of one block of kDrawBlock elements, from element `first` of the range.
template <class Simd, MomentFormat format>
struct BlockMoments {
  using Value = typename Simd::Value;
  using Word = typename Simd::Word;
  using Held = HeldMoments<Simd, format>;

  static Value load(const void* plane, int64_t i) {
    if constexpr (format == MomentFormat::fp32)
      return Simd::load(at<float>(plane, i));
    else
      return Simd::load(at<bf16>(plane, i));
  }
  void open_group(const AdamRange&, int64_t) {}
  static Value first(const AdamRange& r, int64_t i) { return load(r.moment1, i); }
  static Value second(const AdamRange& r, int64_t i) { return load(r.moment2, i); }
  template <class V>
  [[gnu::always_inline]] static void keep(const AdamRange& r, int64_t i, int64_t, V m, V v, Word random,
                                          Held&) {
    if constexpr (format == MomentFormat::fp32) {
      Simd::store(at<float>(r.moment1, i), m);
      Simd::store(at<float>(r.moment2, i), v);
    } else {
      Simd::store_words(at<uint16_t>(r.moment1, i), moment_bf16(m, random));
      Simd::store_words(at<uint16_t>(r.moment2, i), moment_bf16(v, random));
    }
  }
  void close_group(int64_t) {}
  static void close(Held&) {}
};

template <class Simd>
struct BlockMoments<Simd, MomentFormat::int8> {
  using Value = typename Simd::Value;
  using Word = typename Simd::Word;
  using Held = HeldMoments<Simd, MomentFormat::int8>;

  Value scale_m, scale_v;           // of the open group
  Word group_m, group_v;            // bits of the largest magnitudes of each lane in it
  Word largest_m[2], largest_v[2];  // in each closed one

  [[gnu::always_inline]] void open_group(const AdamRange& r, int64_t i) {
    const auto scale = [](uint16_t bits) { return Value(bits_float(static_cast<uint32_t>(bits) << 16)); };
    scale_m = scale(r.scale1[i / kStateGroup]);
    scale_v = scale(r.scale2[i / kStateGroup]);
    group_m = group_v = Word(0u);
  }
  [[gnu::always_inline]] Value first(const AdamRange& r, int64_t i) const {
    return moment1_of(Simd::load_words(at<const uint8_t>(r.moment1, i)), scale_m);
  }
  [[gnu::always_inline]] Value second(const AdamRange& r, int64_t i) const {
    return moment2_of(Simd::load_words(at<const uint8_t>(r.moment2, i)), scale_v);
  }
  [[gnu::always_inline]] void keep(const AdamRange&, int64_t, int64_t k, Value m, Value v, Word, Held& held) {
    held.m[k] = m;
    held.root_v[k] = root(v);
    group_m = greatest(group_m, bits_of(magnitude(m)));
    group_v = greatest(group_v, bits_of(held.root_v[k]));
  }
  [[gnu::always_inline]] void close_group(int64_t group) {
    largest_m[group] = group_m;
    largest_v[group] = group_v;
  }
  [[gnu::always_inline]] void close(Held& held) const {
    held.largest = Simd::largest_of_four(largest_m[0], largest_m[1], largest_v[0], largest_v[1]);
  }
};

template <class Simd, int64_t group>
[[gnu::always_inline]] inline void code_group(const AdamRange& r, int64_t i,
                                              const HeldMoments<Simd, MomentFormat::int8>& held,
                                              typename Simd::Four bases, const typename Simd::Word* random) {
  const auto base_m = Simd::template one_of_four<group>(bases);
  const auto base_v = Simd::template one_of_four<2 + group>(bases);
#pragma GCC unroll 2
  for (int64_t k = group * kVectorsOfGroup<Simd>; k < (group + 1) * kVectorsOfGroup<Simd>; ++k) {
    const int64_t to = i + k * Simd::kLanes;
    Simd::store_words(at<uint8_t>(r.moment1, to), moment1_code(held.m[k], base_m, random[k]));
    Simd::store_words(at<uint8_t>(r.moment2, to), moment2_code(held.root_v[k], base_v, random[k]));
  }
}

/// Stores the scales and codes of the block from element i on.
template <class Simd>
[[gnu::always_inline]] inline void code_block(const AdamRange& r, int64_t i,
                                              const HeldMoments<Simd, MomentFormat::int8>& held,
                                              const typename Simd::Word* random) {
  using Four = typename Simd::Four;
  constexpr ScaleRule m = kMoment1Scale, v = kMoment2Scale;
  const auto rule = [](uint32_t of_m, uint32_t of_v) { return Simd::four(of_m, of_m, of_v, of_v); };
  const Four scales =
      group_scale(held.largest, ScaleRules<Four>{rule(m.addend, v.addend), rule(m.kept, v.kept),
                                                 rule(m.smallest, v.smallest), rule(m.largest, v.largest),
                                                 rule(m.nan_from, v.nan_from)});
  Simd::store_four(r.scale1 + i / kStateGroup, r.scale2 + i / kStateGroup, scales);
  const Four bases = coding_base(scales);
  code_group<Simd, 0>(r, i, held, bases, random);
  code_group<Simd, 1>(r, i, held, bases, random);
}

}  // namespace tandem
