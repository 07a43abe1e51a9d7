#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/math/adam_formula.h"
#include "core/math/philox.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/make_workers.h"

namespace tandem {

/// What a pass is made of, apart from its data.
struct AdamCase {
  DType grad = DType::f32, weight = DType::f32;
  Decay decay = Decay::decoupled;
  float prediction = 0;
  StateFormat format = {};
};

inline std::vector<AdamCase> all_adam_cases() {
  const std::pair<DType, DType> types[] = {{DType::f32, DType::f32},
                                           {DType::bf16, DType::bf16},
                                           {DType::f16, DType::f16},
                                           {DType::f32, DType::bf16},
                                           {DType::f32, DType::f16}};
  std::vector<AdamCase> cases;
  for (const StateFormat format : all_state_formats())
    for (const auto& [grad, weight] : types)
      for (const Decay decay : {Decay::none, Decay::l2, Decay::decoupled})
        for (const float prediction : {0.0f, 1.5f})
          if (format.master == MasterFormat::fp32 || weight == DType::bf16)
            cases.push_back({grad, weight, decay, prediction, format});
  return cases;
}

inline std::string label(const AdamCase& c) {
  return fmt::format("{}, {} -> {}, decay {}, prediction {}", name_of(c.format), name_of(c.grad),
                     name_of(c.weight), static_cast<int>(c.decay), c.prediction);
}

/// A float of the given type stored at `at`, rounded to nearest.
inline void put(std::byte* at, DType dtype, float x) {
  if (dtype == DType::f32) std::memcpy(at, &x, 4);
  const bf16 b = to_bf16(x);
  if (dtype == DType::bf16) std::memcpy(at, &b, 2);
  const f16 h = to_f16(x);
  if (dtype == DType::f16) std::memcpy(at, &h, 2);
}
inline float get(const std::byte* at, DType dtype) {
  float x = 0;
  bf16 b;
  f16 h;
  if (dtype == DType::f32) std::memcpy(&x, at, 4);
  if (dtype == DType::bf16) std::memcpy(&b, at, 2), x = to_float(b);
  if (dtype == DType::f16) std::memcpy(&h, at, 2), x = to_float(h);
  return x;
}
inline void put_weight(std::byte* at, DType dtype, float x) {
  const bf16 b = round_weight<bf16>(x);
  const f16 h = round_weight<f16>(x);
  if (dtype == DType::f32) std::memcpy(at, &x, 4);
  if (dtype == DType::bf16) std::memcpy(at, &b, 2);
  if (dtype == DType::f16) std::memcpy(at, &h, 2);
}

/// Memory from a multiple of 64 bytes on, where a pass may store past the caches.
template <class T>
struct Aligned64 {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{64}); }
  friend bool operator==(Aligned64, Aligned64) { return true; }
};
using PlaneBytes = std::vector<std::byte, Aligned64<std::byte>>;

/// The planes of n elements, starting `shift` elements into their memory, with guards at both ends that a
/// pass must leave alone. Groups of int8 moments begin at element 0 whatever the shift.
struct Planes {
  static constexpr int64_t kGuard = 64;
  int64_t n = 0, shift = 0;
  DType grad_type, weight_type;
  StateFormat format;
  bool predicts;
  PlaneBytes master, moment1, moment2, scale1, scale2;
  PlaneBytes grad, weight, upper, upper_new;

  Planes(int64_t n, int64_t shift, const AdamCase& c)
      : n(n),
        shift(shift),
        grad_type(c.grad),
        weight_type(c.weight),
        format(c.format),
        predicts(c.prediction != 0) {
    const auto all = static_cast<size_t>(n + shift + kGuard);
    const auto bytes = [&](StatePlane plane) { return all * shape_of(format, plane).bytes; };
    master.assign(bytes(StatePlane::master), std::byte{0x11});
    moment1.assign(bytes(StatePlane::moment1), std::byte{0x11});
    moment2.assign(bytes(StatePlane::moment2), std::byte{0x11});
    scale1.assign(bytes(StatePlane::scale1), std::byte{0x11});
    scale2.assign(bytes(StatePlane::scale2), std::byte{0x11});
    for (auto* plane : {&upper, &upper_new}) plane->assign(beside() ? 2 * all : 0, std::byte{0x11});
    grad.assign(all * size_of(c.grad), std::byte{0x11});
    weight.assign(all * size_of(c.weight), std::byte{0x11});
  }
  [[nodiscard]] bool beside() const { return row_of(format.master).beside_weights; }
  /// Element i (of a plane of scales: group i) of a plane whose elements are T.
  template <class T = float>
  [[nodiscard]] T* at(PlaneBytes& plane, int64_t i) {
    return reinterpret_cast<T*>(plane.data()) + shift + i;
  }
  [[nodiscard]] std::byte* grad_at(int64_t i) {
    return grad.data() + static_cast<size_t>(shift + i) * size_of(grad_type);
  }
  [[nodiscard]] std::byte* weight_at(int64_t i) {
    return weight.data() + static_cast<size_t>(shift + i) * size_of(weight_type);
  }
  /// Where a pass writes. In place: published weights over the gradient, where its elements are of their
  /// size; the upper halves of masters over their former ones. Else the upper halves are what is published,
  /// or with prediction in a plane of their own.
  [[nodiscard]] std::byte* weight_out(bool in_place) {
    return in_place && size_of(grad_type) == size_of(weight_type) ? grad_at(0) : weight_at(0);
  }
  [[nodiscard]] std::byte* upper_out(bool in_place) {
    if (!beside()) return nullptr;
    if (!in_place && !predicts) return weight_out(in_place);
    return reinterpret_cast<std::byte*>(at<uint16_t>(in_place ? upper : upper_new, 0));
  }
  [[nodiscard]] std::span<std::byte> state(StatePlane plane, PlaneBytes& bytes) {
    const size_t first = static_cast<size_t>(shift) * shape_of(format, plane).bytes;
    return {bytes.data() + first, plane_bytes(format, plane, n)};
  }
  [[nodiscard]] AdamSpans spans(bool in_place) {
    AdamSpans s{{format, state(StatePlane::master, master), state(StatePlane::moment1, moment1),
                 state(StatePlane::moment2, moment2), state(StatePlane::scale1, scale1),
                 state(StatePlane::scale2, scale2)},
                {grad_at(0), grad_type, {n}},
                {weight_out(in_place), weight_type, {n}}};
    if (beside()) {
      s.upper_in = {at<uint16_t>(upper, 0), DType::bf16, {n}};
      s.upper_out = {upper_out(in_place), DType::bf16, {n}};
    }
    return s;
  }
};

/// Values over many magnitudes, with zeros, denormals, huge ones, infinities and NaN (at most one NaN or
/// infinity per element, so that no rule about which of two NaNs survives is needed). Element i depends on i
/// alone.
struct Element {
  float p, g, m, v;
};
inline Element element(int64_t i) {
  const Philox r = philox(2024, static_cast<uint64_t>(i), 0);
  const auto uniform = [](uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; };
  const auto sign = [](uint32_t bits) { return (bits & 1u) != 0 ? -1.0f : 1.0f; };
  float p = sign(r.x[0]) * uniform(r.x[0]);
  float g = sign(r.x[1]) * std::ldexp(uniform(r.x[1]), -static_cast<int>(r.x[1] % 24u));
  float m = sign(r.x[2]) * 0.1f * uniform(r.x[2]), v = 0.01f * uniform(r.x[3]);
  switch (r.x[3] % 64u) {
    case 0:
      g = 0, m = 0, v = 0;
      break;
    case 1:
      p = -0.0f, g = 0, m = 0;
      break;
    case 2:
      g = 1e-30f, v = 1e-38f;
      break;
    case 3:
      g = 1e20f;
      break;
    case 4:
      m = 1e-40f, v = 1e-42f, g = 1e-7f;
      break;
    case 5:
      p = std::bit_cast<float>(0x3F808000u + (r.x[0] & 3u) - 1u), g = 0, m = 0;  // ties of bf16
      break;
    case 6:
      p = std::bit_cast<float>(0x3F801000u + (r.x[0] & 3u) - 1u), g = 0, m = 0;  // ties of f16
      break;
    case 7:
      p = 3e-6f * uniform(r.x[0]), g = 0, m = 0;  // f16 denormals
      break;
    case 8:
      p = 65520.0f, g = 0, m = 0;  // f16 infinity
      break;
    case 9:
      g = sign(r.x[1]) * INFINITY;
      break;
    case 10:
      g = sign(r.x[1]) * NAN;
      break;
    case 11:
      // Signalling NaN: one whose payload reaches into 16 bits, one that a rounding would carry out of.
      p = std::bit_cast<float>(((r.x[0] & 2u) != 0 ? 0x7FBFFFFFu : 0x7F812345u) | (r.x[0] & 0x80000000u));
      g = 0, m = 0;
      break;
    default:
      break;
  }
  return {p, g, m, v};
}

/// The 16 random bits of element i of a pass at `place`: core/math/philox.h's order and rounds, written
/// again.
inline uint32_t random_of(const AdamPlace& place, int64_t i) {
  const auto e = static_cast<uint64_t>(place.first + i);
  const uint64_t counter = 8 * (e / 64) + e % 16 / 2;
  uint32_t c[] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), place.key.parameter,
                  place.key.t};
  for (uint32_t round = 0; round < 7; ++round) {
    const uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    const uint32_t k0 = static_cast<uint32_t>(place.key.seed) + round * 0x9E3779B9u;
    const uint32_t k1 = static_cast<uint32_t>(place.key.seed >> 32) + round * 0xBB67AE85u;
    const uint32_t next[] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
                             static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    std::copy(next, next + 4, c);
  }
  return (e % 2 == 0 ? c[(e / 16) % 4] : c[(e / 16) % 4] >> 16) & 0xFFFFu;
}

/// The states of one element or group as floats, one by one.
inline float master_of(Planes& s, int64_t i) {
  if (s.format.master == MasterFormat::fp32) return *s.at(s.master, i);
  const uint32_t upper = *s.at<uint16_t>(s.upper, i);
  if (s.format.master == MasterFormat::split) return split_joined<float>(upper, *s.at<uint16_t>(s.master, i));
  return ulp8_joined<float>(upper, static_cast<uint32_t>(*s.at<int8_t>(s.master, i)));
}
inline float moment1_of(Planes& s, int64_t i) {
  if (s.format.moments == MomentFormat::fp32) return *s.at(s.moment1, i);
  if (s.format.moments == MomentFormat::bf16) return to_float(*s.at<bf16>(s.moment1, i));
  return moment1_of<float>(*s.at<uint8_t>(s.moment1, i), to_float(*s.at<bf16>(s.scale1, i / 32)));
}
inline float moment2_of(Planes& s, int64_t i) {
  if (s.format.moments == MomentFormat::fp32) return *s.at(s.moment2, i);
  if (s.format.moments == MomentFormat::bf16) return to_float(*s.at<bf16>(s.moment2, i));
  return moment2_of<float>(*s.at<uint8_t>(s.moment2, i), to_float(*s.at<bf16>(s.scale2, i / 32)));
}
inline void set_master(Planes& s, int64_t i, float p, uint32_t random, uint16_t* upper_out) {
  if (s.format.master == MasterFormat::fp32) {
    *s.at(s.master, i) = p;
  } else if (s.format.master == MasterFormat::split) {
    *upper_out = round_weight<bf16>(p).bits;
    *s.at<uint16_t>(s.master, i) = static_cast<uint16_t>(split_low(p));
  } else {
    const float rounded = ulp8_rounded<float>(p, random);
    *upper_out = round_weight<bf16>(rounded).bits;
    *s.at<uint8_t>(s.master, i) = static_cast<uint8_t>(ulp8_error<float>(rounded));
  }
}
/// Moments of the elements [first, first + m.size()), a group where the format has groups.
inline void set_moments(Planes& s, int64_t first, const std::vector<float>& m, const std::vector<float>& v,
                        const AdamPlace& place) {
  uint32_t largest1 = 0, largest2 = 0;
  for (size_t k = 0; k < m.size(); ++k) {
    largest1 = std::max(largest1, float_bits(m[k]) & 0x7FFFFFFFu);
    largest2 = std::max(largest2, float_bits(std::sqrt(v[k])) & 0x7FFFFFFFu);
  }
  const uint32_t scale1 = group_scale(largest1, kMoment1Scale), scale2 = group_scale(largest2, kMoment2Scale);
  if (s.format.moments == MomentFormat::int8) {
    *s.at<uint16_t>(s.scale1, first / 32) = static_cast<uint16_t>(scale1);
    *s.at<uint16_t>(s.scale2, first / 32) = static_cast<uint16_t>(scale2);
  }
  for (size_t k = 0; k < m.size(); ++k) {
    const int64_t i = first + static_cast<int64_t>(k);
    const uint32_t random = random_of(place, i);
    if (s.format.moments == MomentFormat::fp32) {
      *s.at(s.moment1, i) = m[k], *s.at(s.moment2, i) = v[k];
    } else if (s.format.moments == MomentFormat::bf16) {
      *s.at<uint16_t>(s.moment1, i) = static_cast<uint16_t>(moment_bf16<float>(m[k], random));
      *s.at<uint16_t>(s.moment2, i) = static_cast<uint16_t>(moment_bf16<float>(v[k], random));
    } else {
      *s.at<uint8_t>(s.moment1, i) =
          static_cast<uint8_t>(moment1_code<float>(m[k], coding_base(scale1), random));
      *s.at<uint8_t>(s.moment2, i) =
          static_cast<uint8_t>(moment2_code<float>(std::sqrt(v[k]), coding_base(scale2), random));
    }
  }
}

/// The place of the tests' passes.
inline AdamPlace test_place(int64_t first = 0) { return {{77, 5, 3}, first}; }

/// Element by element, or group by group of 32.
template <class Body>
void for_groups(int64_t n, const Body& body) {
  for (int64_t first = 0; first < n; first += 32) body(first, std::min<int64_t>(32, n - first));
}

/// The states of element(0), element(1) ... as the format holds them.
inline void fill(Planes& planes) {
  for_groups(planes.n, [&](int64_t first, int64_t count) {
    std::vector<float> m, v;
    for (int64_t i = first; i < first + count; ++i) {
      const Element e = element(i);
      set_master(planes, i, e.p, kUlp8Nearest, planes.at<uint16_t>(planes.upper, i));
      put(planes.grad_at(i), planes.grad_type, e.g);
      m.push_back(e.m);
      v.push_back(e.v);
    }
    set_moments(planes, first, m, v, test_place(1 << 20));
  });
}

/// The pass as a plain loop over the formula and the codecs, one element after the other.
template <Decay decay>
void reference_pass(Planes& planes, const AdamScalars& scalars, float prediction, bool in_place,
                    const AdamPlace& place) {
  const AdamConstants<float> constants(scalars);
  for_groups(planes.n, [&](int64_t first, int64_t count) {
    std::vector<float> m, v;
    for (int64_t i = first; i < first + count; ++i) {
      const float before = master_of(planes, i);
      float p = before, m_new = moment1_of(planes, i), v_new = moment2_of(planes, i);
      adam_update<decay>(p, m_new, v_new, get(planes.grad_at(i), planes.grad_type), constants);
      m.push_back(m_new);
      v.push_back(v_new);
      auto* upper = reinterpret_cast<uint16_t*>(planes.upper_out(in_place));
      set_master(planes, i, p, random_of(place, i), upper == nullptr ? nullptr : upper + i);
      std::byte* weight = planes.weight_out(in_place) + static_cast<size_t>(i) * size_of(planes.weight_type);
      if (prediction != 0)
        put_weight(weight, planes.weight_type, predicted(p, before, prediction));
      else if (planes.beside())
        std::memcpy(weight, upper + i, sizeof *upper);
      else
        put_weight(weight, planes.weight_type, p);
    }
    set_moments(planes, first, m, v, place);
  });
}
inline void reference(Planes& planes, const AdamCase& c, const AdamScalars& scalars, bool in_place,
                      const AdamPlace& place) {
  if (c.decay == Decay::none) reference_pass<Decay::none>(planes, scalars, c.prediction, in_place, place);
  if (c.decay == Decay::l2) reference_pass<Decay::l2>(planes, scalars, c.prediction, in_place, place);
  if (c.decay == Decay::decoupled)
    reference_pass<Decay::decoupled>(planes, scalars, c.prediction, in_place, place);
}

inline AdamScalars test_scalars(int64_t t = 3) {
  return adam_scalars({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}, 1e-3, t, 0.7, 8.0);
}

template <class T, class Allocator>
bool same_bits(const std::vector<T, Allocator>& a, const std::vector<T, Allocator>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
inline bool same_bits(const Planes& a, const Planes& b) {
  return same_bits(a.master, b.master) && same_bits(a.moment1, b.moment1) &&
         same_bits(a.moment2, b.moment2) && same_bits(a.scale1, b.scale1) && same_bits(a.scale2, b.scale2) &&
         same_bits(a.grad, b.grad) && same_bits(a.weight, b.weight) && same_bits(a.upper, b.upper) &&
         same_bits(a.upper_new, b.upper_new);
}

/// Every kind of pool in this build.
inline std::vector<PoolKind> pool_kinds() {
  if (usual_pool() == PoolKind::plain) return {PoolKind::plain};
  return {PoolKind::plain, PoolKind::tbb};
}

}  // namespace tandem
