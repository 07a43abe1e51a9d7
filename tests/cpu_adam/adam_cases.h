#pragma once
#include <bit>
#include <cmath>
#include <cstring>
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
};

inline std::vector<AdamCase> all_adam_cases() {
  const std::pair<DType, DType> types[] = {{DType::f32, DType::f32},
                                           {DType::bf16, DType::bf16},
                                           {DType::f16, DType::f16},
                                           {DType::f32, DType::bf16},
                                           {DType::f32, DType::f16}};
  std::vector<AdamCase> cases;
  for (const auto& [grad, weight] : types)
    for (const Decay decay : {Decay::none, Decay::l2, Decay::decoupled})
      for (const float prediction : {0.0f, 1.5f}) cases.push_back({grad, weight, decay, prediction});
  return cases;
}

inline std::string label(const AdamCase& c) {
  return fmt::format("{} -> {}, decay {}, prediction {}", name_of(c.grad), name_of(c.weight),
                     static_cast<int>(c.decay), c.prediction);
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

/// Five planes of n elements each, starting `shift` elements into their memory, with guards at both ends that
/// a pass must leave alone.
struct Planes {
  static constexpr int64_t kGuard = 64;
  int64_t n = 0, shift = 0;
  DType grad_type, weight_type;
  std::vector<float> master, moment1, moment2;
  std::vector<std::byte> grad, weight;

  Planes(int64_t n, int64_t shift, const AdamCase& c)
      : n(n), shift(shift), grad_type(c.grad), weight_type(c.weight) {
    const auto all = static_cast<size_t>(n + shift + kGuard);
    for (auto* plane : {&master, &moment1, &moment2}) plane->assign(all, 7.0f);
    grad.assign(all * size_of(c.grad), std::byte{0x11});
    weight.assign(all * size_of(c.weight), std::byte{0x11});
  }
  [[nodiscard]] std::byte* grad_at(int64_t i) {
    return grad.data() + static_cast<size_t>(shift + i) * size_of(grad_type);
  }
  [[nodiscard]] std::byte* weight_at(int64_t i) {
    return weight.data() + static_cast<size_t>(shift + i) * size_of(weight_type);
  }
  [[nodiscard]] float* at(std::vector<float>& plane, int64_t i) { return plane.data() + shift + i; }
  [[nodiscard]] AdamSpans spans(bool in_place) {
    const auto count = static_cast<size_t>(n);
    return {{at(master, 0), count},
            {at(moment1, 0), count},
            {at(moment2, 0), count},
            {grad_at(0), grad_type, {n}},
            {in_place ? grad_at(0) : weight_at(0), weight_type, {n}}};
  }
};

/// Values over many magnitudes, with zeros, denormals, huge ones, infinities and NaN (at most one NaN or
/// infinity per element, so that no rule about which of two NaNs survives is needed). Element i depends on i
/// alone.
inline void fill(Planes& planes) {
  for (int64_t i = 0; i < planes.n; ++i) {
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
        m = 0;  // signalling, payload low
        break;
      default:
        break;
    }
    *planes.at(planes.master, i) = p;
    *planes.at(planes.moment1, i) = m;
    *planes.at(planes.moment2, i) = v;
    put(planes.grad_at(i), planes.grad_type, g);
  }
}

/// The pass as a plain loop over the formula.
template <Decay decay>
void reference_pass(Planes& planes, const AdamScalars& scalars, float prediction, bool in_place) {
  const AdamConstants<float> constants(scalars);
  for (int64_t i = 0; i < planes.n; ++i) {
    float &p = *planes.at(planes.master, i), before = p;
    adam_update<decay>(p, *planes.at(planes.moment1, i), *planes.at(planes.moment2, i),
                       get(planes.grad_at(i), planes.grad_type), constants);
    put_weight(in_place ? planes.grad_at(i) : planes.weight_at(i), planes.weight_type,
               prediction == 0 ? p : predicted(p, before, prediction));
  }
}
inline void reference(Planes& planes, const AdamCase& c, const AdamScalars& scalars, bool in_place) {
  if (c.decay == Decay::none) reference_pass<Decay::none>(planes, scalars, c.prediction, in_place);
  if (c.decay == Decay::l2) reference_pass<Decay::l2>(planes, scalars, c.prediction, in_place);
  if (c.decay == Decay::decoupled) reference_pass<Decay::decoupled>(planes, scalars, c.prediction, in_place);
}

inline AdamScalars test_scalars(int64_t t = 3) {
  return adam_scalars({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}, 1e-3, t, 0.7, 8.0);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
inline bool same_bits(const Planes& a, const Planes& b) {
  return same_bits(a.master, b.master) && same_bits(a.moment1, b.moment1) &&
         same_bits(a.moment2, b.moment2) && same_bits(a.grad, b.grad) && same_bits(a.weight, b.weight);
}

/// Every kind of pool in this build.
inline std::vector<PoolKind> pool_kinds() {
  if (usual_pool() == PoolKind::plain) return {PoolKind::plain};
  return {PoolKind::plain, PoolKind::tbb};
}

}  // namespace tandem
