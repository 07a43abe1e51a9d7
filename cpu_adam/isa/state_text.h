#pragma once
// How the Adam kernels load and store states: core/math/state_codecs.h over the planes of a range. See
// adam_text.h for what Simd is.
#include "cpu_adam/isa/kernels.h"

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

/// Where nothing is predicted, it is what is published.
template <class Simd>
inline void store_upper(const AdamRange& r, int64_t i, typename Simd::Word upper) {
  if (r.stream && r.prediction == 0.0f)
    Simd::stream_words(r.upper_out + i, upper);
  else
    Simd::store_words(r.upper_out + i, upper);
}

template <class Simd, MasterFormat format>
inline void store_master(const AdamRange& r, int64_t i, typename Simd::Value p, typename Simd::Word random) {
  if constexpr (format == MasterFormat::fp32) {
    Simd::store(at<float>(r.master, i), p);
  } else if constexpr (format == MasterFormat::split) {
    store_upper<Simd>(r, i, upper_of(p));
    Simd::store_words(at<uint16_t>(r.master, i), split_low(p));
  } else {
    const typename Simd::Value rounded = ulp8_rounded(p, random);
    const typename Simd::Word upper = upper_of(rounded);
    store_upper<Simd>(r, i, upper);
    Simd::store_words(at<uint8_t>(r.master, i), ulp8_error(rounded, upper));
  }
}

/// What forward reads, of the master as it was computed.
template <class Simd, MasterFormat format, class Weight>
inline void publish(const AdamRange& r, int64_t i, typename Simd::Value p, typename Simd::Value before) {
  using Value = typename Simd::Value;
  const auto put = [&](Value x) {
    auto* to = at<Weight>(r.weight_out, i);
    if (r.stream)
      Simd::stream_weight(to, x);
    else
      Simd::store_weight(to, x);
  };
  // Not the prediction by 0: that would turn -0 into 0 and an infinity into NaN.
  if (r.prediction != 0.0f)
    put(predicted(p, before, Value(r.prediction)));
  else if constexpr (!row_of(format).beside_weights)
    put(p);
}

/// The moments of one group of kStateGroup elements, from element `first` of the range.
template <class Simd, MomentFormat format>
struct GroupMoments {
  using Value = typename Simd::Value;
  using Word = typename Simd::Word;

  static Value load(const void* plane, int64_t i) {
    if constexpr (format == MomentFormat::fp32)
      return Simd::load(at<float>(plane, i));
    else
      return Simd::load(at<bf16>(plane, i));
  }
  GroupMoments(const AdamRange&, int64_t) {}
  static Value first(const AdamRange& r, int64_t i) { return load(r.moment1, i); }
  static Value second(const AdamRange& r, int64_t i) { return load(r.moment2, i); }
  static void keep(const AdamRange& r, int64_t i, int64_t, Value m, Value v, Word random) {
    if constexpr (format == MomentFormat::fp32) {
      Simd::store(at<float>(r.moment1, i), m);
      Simd::store(at<float>(r.moment2, i), v);
    } else {
      Simd::store_words(at<uint16_t>(r.moment1, i), moment1_bf16(m, random));
      Simd::store_words(at<uint16_t>(r.moment2, i), moment2_bf16(v, random));
    }
  }
  static void close(const AdamRange&, int64_t, const Word*) {}
};

/// Held until the group's largest magnitudes are known.
template <class Simd>
struct GroupMoments<Simd, MomentFormat::int8> {
  using Value = typename Simd::Value;
  using Word = typename Simd::Word;
  static constexpr int64_t kVectors = kStateGroup / Simd::kLanes;

  Value scale1, step2;
  Value m[kVectors], root_v[kVectors];
  Word largest1{0u}, largest2{0u};

  GroupMoments(const AdamRange& r, int64_t i)
      : scale1(bits_float(static_cast<uint32_t>(r.scale1[i / kStateGroup]) << 16)),
        step2(code_step(Value(bits_float(static_cast<uint32_t>(r.scale2[i / kStateGroup]) << 16)))) {}
  Value first(const AdamRange& r, int64_t i) const {
    return moment1_of(Simd::load_words(at<const int8_t>(r.moment1, i)), scale1);
  }
  Value second(const AdamRange& r, int64_t i) const {
    return moment2_of(Simd::load_words(at<const uint8_t>(r.moment2, i)), step2);
  }
  void keep(const AdamRange&, int64_t, int64_t k, Value m_new, Value v_new, Word) {
    m[k] = m_new;
    root_v[k] = root(v_new);
    largest1 = greatest(largest1, bits_of(magnitude(m[k])));
    largest2 = greatest(largest2, bits_of(magnitude(root_v[k])));
  }
  [[gnu::always_inline]] void close(const AdamRange& r, int64_t i, const Word* random) const {
    const uint32_t scale_m = moment1_scale<Value>(Simd::largest(largest1));
    const uint32_t scale_v = moment2_scale<Value>(Simd::largest(largest2));
    r.scale1[i / kStateGroup] = static_cast<uint16_t>(scale_m);
    r.scale2[i / kStateGroup] = static_cast<uint16_t>(scale_v);
    const Value scale = coding_scale<Value>(scale_m), steps = Value(255.0f) / coding_scale<Value>(scale_v);
    for (int64_t k = 0; k < kVectors; ++k) {
      const int64_t to = i + k * Simd::kLanes;
      Simd::store_words(at<uint8_t>(r.moment1, to), moment1_code(m[k], scale, random[k]));
      Simd::store_words(at<uint8_t>(r.moment2, to), moment2_code(root_v[k], steps, random[k]));
    }
  }
};

}  // namespace tandem
