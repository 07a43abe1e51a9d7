#pragma once
#include "core/math/adam_formula.h"
#include "gpu/kernels/pack.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// One pass over [n]: the masters and moments that it updates, and how.
struct AdamPass {
  float *master, *moment1, *moment2;  // [n]
  int64_t n;
  AdamScalars scalars;
  float prediction;  ///< 0: the rounded master itself is published
};

/// core/math/adam_formula.h, bit-equal to the CPU's: p, m, v updated by grad; weight_out = round_weight(p),
/// or of what is predicted. One pack a thread. weight_out, grad: [n], which may be one memory. Reads and
/// writes each array once.
template <Decay decay, class Weight, class Grad>
KERNEL void adam(Weight* weight_out, const Grad* grad, AdamPass pass) {
  const AdamConstants<float> constants(pass.scalars);
  const bool wide = aligned(pass.master, pass.moment1, pass.moment2) && aligned(weight_out) && aligned(grad);
  for_grid(pass.n, wide, [&](int64_t i, Part part) {
    Pack p = load(pass.master + i, part), m = load(pass.moment1 + i, part), v = load(pass.moment2 + i, part);
    const Pack g = load(grad + i, part);
    const Pack published = pack_of([&](int k) {
      const float before = p.x[k];
      adam_update<decay>(p.x[k], m.x[k], v.x[k], g.x[k], constants);
      return pass.prediction != 0 ? predicted(p.x[k], before, pass.prediction) : p.x[k];
    });
    store(pass.master + i, p, part);
    store(pass.moment1 + i, m, part);
    store(pass.moment2 + i, v, part);
    store_weight(weight_out + i, published, part);
  });
}

}  // namespace tandem::gpu::TANDEM_SIMT
