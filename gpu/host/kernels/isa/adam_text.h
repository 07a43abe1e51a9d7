#pragma once
// Text of an ISA file: core/math/adam_formula.h over vectors.
#include "gpu/host/kernels/isa/loops.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

/// The value type that the formula is written over: every operation is correctly rounded, so all tables
/// agree.
struct AdamFloats {
  Floats x;
  AdamFloats(Floats batch) : x(batch) {}  // NOLINT: reads as the batch it is
  explicit AdamFloats(float value) : x(value) {}
};
inline AdamFloats operator*(AdamFloats a, AdamFloats b) { return a.x * b.x; }
inline AdamFloats operator/(AdamFloats a, AdamFloats b) { return a.x / b.x; }
inline AdamFloats operator-(AdamFloats a, AdamFloats b) { return a.x - b.x; }
inline AdamFloats fused(AdamFloats a, AdamFloats b, AdamFloats c) { return fused_batch(a.x, b.x, c.x); }
inline AdamFloats root(AdamFloats a) { return xsimd::sqrt(a.x); }

template <Decay decay, class G, class W>
void adam_range(const AdamRange& r, const AdamScalars& scalars, float prediction) {
  const AdamConstants<AdamFloats> constants(scalars);
  const G* grad = as<G>(r.grad);
  W* weight = as<W>(r.weight_out);
  for_vectors(0, r.n, [&](int64_t i, auto lanes) {
    AdamFloats p = load(r.master + i, lanes), m = load(r.moment1 + i, lanes), v = load(r.moment2 + i, lanes);
    const AdamFloats before = p;
    adam_update<decay>(p, m, v, AdamFloats(load(grad + i, lanes)), constants);
    store(r.master + i, p.x, lanes);
    store(r.moment1 + i, m.x, lanes);
    store(r.moment2 + i, v.x, lanes);
    if (prediction != 0) p = predicted(p, before, AdamFloats(prediction));
    store_weight(weight + i, p.x, lanes);
  });
}

void adam(const AdamRange& range, Decay decay, const AdamScalars& scalars, float prediction) {
  with_type(range.grad_type, [&](auto g) {
    with_type(range.weight_type, [&](auto w) {
      using G = decltype(g);
      using W = decltype(w);
      switch (decay) {
        case Decay::none:
          return adam_range<Decay::none, G, W>(range, scalars, prediction);
        case Decay::l2:
          return adam_range<Decay::l2, G, W>(range, scalars, prediction);
        case Decay::decoupled:
          return adam_range<Decay::decoupled, G, W>(range, scalars, prediction);
      }
    });
  });
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
