#include "cpu_adam/state_convert.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"

namespace tandem {

namespace {

constexpr int64_t kGrain = 16384;  // elements of a task, a multiple of kDrawBlock

template <class T>
T* elements(std::span<std::byte> plane) {
  return reinterpret_cast<T*>(plane.data());
}
float scale_of(uint16_t bits) { return to_float(bf16{bits}); }

void check(const AdamStates& s, const Tensor& upper, const StateValues& values) {
  const auto n = static_cast<int64_t>(values.master.size());
  ASSERT(values.moment1.size() == values.master.size() && values.moment2.size() == values.master.size(),
         "values of {} masters, {} and {} moments", n, values.moment1.size(), values.moment2.size());
  const std::array<std::span<std::byte>, kStatePlanes> planes{s.master, s.moment1, s.moment2, s.scale1,
                                                              s.scale2};
  for (size_t i = 0; i < kStatePlanes; ++i) {
    const size_t wanted = plane_bytes(s.format, static_cast<StatePlane>(i), n);
    ASSERT(planes[i].size() == wanted, "{} bytes of {}: {} elements of {} states are {}", planes[i].size(),
           kStatePlaneNames[i], n, name_of(s.format), wanted);
  }
  const int64_t beside = row_of(s.format.master).beside_weights ? n : 0;
  ASSERT(upper.numel() == beside, "{} weights beside {} masters that need {}", upper.numel(), n, beside);
}

float decoded_master(const AdamStates& s, const bf16* upper, int64_t i) {
  switch (s.format.master) {
    case MasterFormat::fp32:
      return elements<float>(s.master)[i];
    case MasterFormat::split:
      return split_joined<float>(upper[i].bits, elements<uint16_t>(s.master)[i]);
    case MasterFormat::ulp8:
      return ulp8_joined<float>(upper[i].bits, static_cast<uint32_t>(elements<int8_t>(s.master)[i]));
  }
  return 0;
}

void encode_master(const AdamStates& s, bf16* upper, int64_t i, float p, uint32_t word) {
  switch (s.format.master) {
    case MasterFormat::fp32:
      elements<float>(s.master)[i] = p;
      return;
    case MasterFormat::split:
      upper[i] = round_weight<bf16>(p);
      elements<uint16_t>(s.master)[i] = static_cast<uint16_t>(split_low(p));
      return;
    case MasterFormat::ulp8:
      const float rounded = ulp8_rounded(p, word);
      upper[i] = bf16{static_cast<uint16_t>(ulp8_upper(rounded))};
      elements<uint8_t>(s.master)[i] = static_cast<uint8_t>(ulp8_error(rounded));
      return;
  }
}

void decode_moments(const AdamStates& s, int64_t i, float& m, float& v) {
  switch (s.format.moments) {
    case MomentFormat::fp32:
      m = elements<float>(s.moment1)[i], v = elements<float>(s.moment2)[i];
      return;
    case MomentFormat::bf16:
      m = to_float(elements<bf16>(s.moment1)[i]), v = to_float(elements<bf16>(s.moment2)[i]);
      return;
    case MomentFormat::int8:
      m = moment1_of<float>(elements<uint8_t>(s.moment1)[i],
                            scale_of(elements<uint16_t>(s.scale1)[i / kStateGroup]));
      v = moment2_of<float>(elements<uint8_t>(s.moment2)[i],
                            scale_of(elements<uint16_t>(s.scale2)[i / kStateGroup]));
      return;
  }
}

/// The scales of the group that begins at `first`, stored and returned as what to code by.
std::array<uint32_t, 2> encode_scales(const AdamStates& s, const StateValues& values, int64_t first,
                                      int64_t end) {
  uint32_t largest1 = 0, largest2 = 0;
  for (int64_t i = first; i < end; ++i) {
    const auto k = static_cast<size_t>(i);
    largest1 = std::max(largest1, bits_of(magnitude(values.moment1[k])));
    largest2 = std::max(largest2, bits_of(root(values.moment2[k])));
  }
  const uint32_t scale1 = group_scale(largest1, kMoment1Scale), scale2 = group_scale(largest2, kMoment2Scale);
  elements<uint16_t>(s.scale1)[first / kStateGroup] = static_cast<uint16_t>(scale1);
  elements<uint16_t>(s.scale2)[first / kStateGroup] = static_cast<uint16_t>(scale2);
  return {coding_base(scale1), coding_base(scale2)};
}

void encode_moments(const AdamStates& s, int64_t i, float m, float v, const std::array<uint32_t, 2>& bases,
                    uint32_t word) {
  switch (s.format.moments) {
    case MomentFormat::fp32:
      elements<float>(s.moment1)[i] = m, elements<float>(s.moment2)[i] = v;
      return;
    case MomentFormat::bf16:
      elements<uint16_t>(s.moment1)[i] = static_cast<uint16_t>(moment_bf16(m, word));
      elements<uint16_t>(s.moment2)[i] = static_cast<uint16_t>(moment_bf16(v, word));
      return;
    case MomentFormat::int8:
      elements<uint8_t>(s.moment1)[i] = static_cast<uint8_t>(moment1_code(m, bases[0], word));
      elements<uint8_t>(s.moment2)[i] = static_cast<uint8_t>(moment2_code(root(v), bases[1], word));
      return;
  }
}

bf16* weights_of(const Tensor& upper) { return upper.empty() ? nullptr : upper.data<bf16>(); }

}  // namespace

void decode_states(Workers& workers, const AdamStates& states, const Tensor& upper, const StateValues& out) {
  check(states, upper, out);
  const bf16* weights = weights_of(upper);
  workers.ranges(static_cast<int64_t>(out.master.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto k = static_cast<size_t>(i);
      out.master[k] = decoded_master(states, weights, i);
      decode_moments(states, i, out.moment1[k], out.moment2[k]);
    }
  });
}

void encode_states(Workers& workers, const AdamStates& states, const Tensor& upper, const StateValues& values,
                   const AdamPlace& place) {
  check(states, upper, values);
  ASSERT(place.first % kDrawBlock == 0, "states coded from element {} on", place.first);
  ASSERT(!stochastic(states.format) || place.key.t > 0, "{} states coded without a key for their random bits",
         name_of(states.format));
  bf16* weights = weights_of(upper);
  const bool grouped = states.format.moments == MomentFormat::int8, draws = stochastic(states.format);
  workers.ranges(static_cast<int64_t>(values.master.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, 2> bases{};
    for (int64_t i = begin; i < end; ++i) {
      if (grouped && i % kStateGroup == 0)
        bases = encode_scales(states, values, i, std::min(i + kStateGroup, end));
      const auto k = static_cast<size_t>(i);
      const uint32_t word = draws ? random_bits(place.key, place.first + i) : 0;
      encode_master(states, weights, i, values.master[k], word);
      encode_moments(states, i, values.moment1[k], values.moment2[k], bases, word);
    }
  });
}

}  // namespace tandem
