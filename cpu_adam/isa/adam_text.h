#pragma once
// The one text of the Adam kernels. Simd is an instruction set: a value type Value of kLanes floats for
// core/math/adam_formula.h, load(const T*), store(float*, Value) and store_weight(T*, Value), which rounds
// like round_weight<T>. Its class lives in an unnamed namespace of its own file, so everything here that is
// compiled with that file's flags has internal linkage: the linker can't hand it to a caller on a smaller
// CPU.
#include <cstring>

#include "cpu_adam/isa/kernels.h"

namespace tandem {

/// kLanes elements.
template <class Simd, Decay decay, class Grad, class Weight>
inline void adam_lanes(float* master, float* moment1, float* moment2, const Grad* grad, Weight* weight_out,
                       const AdamConstants<typename Simd::Value>& constants, float prediction) {
  using Value = typename Simd::Value;
  const Value before = Simd::load(master);
  Value p = before, m = Simd::load(moment1), v = Simd::load(moment2);
  adam_update<decay>(p, m, v, Simd::load(grad), constants);
  Simd::store(master, p);
  Simd::store(moment1, m);
  Simd::store(moment2, v);
  // Not the prediction by 0: that would turn -0 into 0 and an infinity into NaN.
  Simd::store_weight(weight_out, prediction == 0.0f ? p : predicted(p, before, Value(prediction)));
}

template <class Simd, class Grad, class Weight, Decay decay>
void adam_range(const AdamRange& range, const AdamScalars& scalars) {
  constexpr int64_t kLanes = Simd::kLanes;
  const AdamConstants<typename Simd::Value> constants(scalars);
  const auto* grad = static_cast<const Grad*>(range.grad);
  auto* weight_out = static_cast<Weight*>(range.weight_out);
  int64_t i = 0;
  for (; i + kLanes <= range.n; i += kLanes)
    adam_lanes<Simd, decay>(range.master + i, range.moment1 + i, range.moment2 + i, grad + i, weight_out + i,
                            constants, range.prediction);
  const auto rest = static_cast<size_t>(range.n - i);
  if (rest == 0) return;
  // The tail runs through the same code, in copies padded with zeros.
  float p[kLanes] = {}, m[kLanes] = {}, v[kLanes] = {};
  Grad g[kLanes] = {};
  Weight w[kLanes] = {};
  std::memcpy(p, range.master + i, rest * sizeof(float));
  std::memcpy(m, range.moment1 + i, rest * sizeof(float));
  std::memcpy(v, range.moment2 + i, rest * sizeof(float));
  std::memcpy(g, grad + i, rest * sizeof(Grad));
  adam_lanes<Simd, decay>(p, m, v, g, w, constants, range.prediction);
  std::memcpy(range.master + i, p, rest * sizeof(float));
  std::memcpy(range.moment1 + i, m, rest * sizeof(float));
  std::memcpy(range.moment2 + i, v, rest * sizeof(float));
  std::memcpy(weight_out + i, w, rest * sizeof(Weight));
}

/// In the order of Decay.
template <class Simd, class Grad, class Weight>
constexpr std::array<AdamKernel, kDecays> adam_row() {
  return {adam_range<Simd, Grad, Weight, Decay::none>, adam_range<Simd, Grad, Weight, Decay::l2>,
          adam_range<Simd, Grad, Weight, Decay::decoupled>};
}

/// In the order of kAdamTypes.
template <class Simd>
constexpr AdamKernels adam_table() {
  return {{adam_row<Simd, float, float>(), adam_row<Simd, bf16, bf16>(), adam_row<Simd, f16, f16>(),
           adam_row<Simd, float, bf16>(), adam_row<Simd, float, f16>()}};
}

}  // namespace tandem
