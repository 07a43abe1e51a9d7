#pragma once
// The one order of Adam's arithmetic, for scalar, SIMD and CUDA. Kingma & Ba 2015; decoupled decay:
// Loshchilov & Hutter 2019. V is float or a SIMD batch; fused multiply-add, square root and division are
// correctly rounded in each, so all agree bit for bit. fused and root for float stand in portable.h; SIMD
// files overload them for their batches.
#include <cmath>
#include <cstdint>

#include "core/base/portable.h"

namespace tandem {

enum class Decay : uint8_t { none, l2, decoupled };

/// Adam's constants of a run.
struct AdamHyper {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;  ///< AdamW; false = L2 added to the gradient
};

/// The scalars of one update, each computed in double and rounded once.
struct AdamScalars {
  float grad_scale;      ///< s = clip / loss_scale
  float beta1, omb1;     ///< beta1, 1 - beta1
  float beta2, omb2;     ///< beta2, 1 - beta2
  float inv_sqrt_bias2;  ///< 1 / sqrt(1 - beta2^t)
  float eps;
  float weight_decay;  ///< L2 coefficient
  float neg_lr_decay;  ///< -(lr * weight_decay)
  float neg_step;      ///< -(lr / (1 - beta1^t))
};

/// base^exponent in double by repeated squaring: the same bits on every libm.
inline double power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

/// t >= 1 counts this update; clip and loss_scale as decided for the gradient that is consumed.
inline AdamScalars adam_scalars(const AdamHyper& h, double lr, int64_t t, double clip, double loss_scale) {
  AdamScalars s{};
  s.grad_scale = static_cast<float>(clip / loss_scale);
  s.beta1 = static_cast<float>(h.beta1);
  s.omb1 = static_cast<float>(1.0 - h.beta1);
  s.beta2 = static_cast<float>(h.beta2);
  s.omb2 = static_cast<float>(1.0 - h.beta2);
  s.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - power(h.beta2, t)));
  s.eps = static_cast<float>(h.eps);
  s.weight_decay = static_cast<float>(h.weight_decay);
  s.neg_lr_decay = static_cast<float>(-(lr * h.weight_decay));
  s.neg_step = static_cast<float>(-(lr / (1.0 - power(h.beta1, t))));
  return s;
}

/// The constants of AdamScalars in the value type (broadcast once per range).
template <class V>
struct AdamConstants {
  V grad_scale, beta1, omb1, beta2, omb2, inv_sqrt_bias2, eps, weight_decay, neg_lr_decay, neg_step;
  TANDEM_HD explicit AdamConstants(const AdamScalars& s)
      : grad_scale(s.grad_scale),
        beta1(s.beta1),
        omb1(s.omb1),
        beta2(s.beta2),
        omb2(s.omb2),
        inv_sqrt_bias2(s.inv_sqrt_bias2),
        eps(s.eps),
        weight_decay(s.weight_decay),
        neg_lr_decay(s.neg_lr_decay),
        neg_step(s.neg_step) {}
};

/// One update of p, m, v by the scaled gradient g (as it came, in fp32):
///   g = g*s; [l2: g = fma(wd, p, g)]; m = fma(b1, m, omb1*g); v = fma(b2, v, omb2*(g*g)); d = fma(sqrt(v),
///   isq, eps); [decoupled: p = fma(-lr*wd, p, p)]; p = fma(-a, m/d, p)
template <Decay decay, class V>
TANDEM_HD void adam_update(V& p, V& m, V& v, V g, const AdamConstants<V>& c) {
  g = g * c.grad_scale;
  if constexpr (decay == Decay::l2) g = fused(c.weight_decay, p, g);
  m = fused(c.beta1, m, c.omb1 * g);
  v = fused(c.beta2, v, c.omb2 * (g * g));
  const V d = fused(root(v), c.inv_sqrt_bias2, c.eps);
  if constexpr (decay == Decay::decoupled) p = fused(c.neg_lr_decay, p, p);
  p = fused(c.neg_step, m / d, p);
}

/// What `correction: predict` publishes: p_new + prediction * (p_new - p_old), before rounding.
template <class V>
TANDEM_HD V predicted(V p_new, V p_old, V prediction) {
  return fused(prediction, p_new - p_old, p_new);
}

}  // namespace tandem
