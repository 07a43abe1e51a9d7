// Op cases of conversions, gradient norm and optimizer.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/gpu/op_cases.h"

namespace tandem::op_cases {

namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Values of every kind: ordinary, ties of the 16-bit types, denormals, overflows, infinities, NaN.
Values awkward_values(DType dtype) {
  Values values = random_values(200, dtype, 1, 4);
  for (const double x : {0.0,         -0.0,
                         1 + 0x1p-8,  1 + 3 * 0x1p-8,
                         1 + 0x1p-11, 1 + 3 * 0x1p-11,
                         -1 - 0x1p-8, 0x1p-25,
                         0x1p-24,     3 * 0x1p-25,
                         0x1p-14,     0x1p-14 - 0x1p-25,
                         65504.0,     65519.0,
                         65520.0,     1e6,
                         0x1p-126,    0x1p-127,
                         3e38,        0x1.ffp127,
                         -0x1.ffp127, 0x1.fep127,
                         kInfinity,   -kInfinity,
                         kNaN})
    values.push_back(rounded(x, dtype));
  return values;
}

}  // namespace

std::vector<OpCase> cast_cases() {
  std::vector<OpCase> cases;
  for (const DType from : kFloats)
    for (const DType to : kFloats) {
      const Values values = awkward_values(from);
      const int64_t n = static_cast<int64_t>(values.size());
      CaseTensor dst{"dst", to, {n}, Values(values.size(), 7), {}, {}};
      for (const double v : values) dst.expected.push_back(rounded(v, to));
      cases.push_back({fmt::format("{} to {}", name_of(from), name_of(to)),
                       {dst, {"src", from, {n}, values, {}, {}}},
                       [](Ops& ops, Stream& s, auto t) { ops.cast(s, t[0], t[1]); }});
    }
  return cases;
}

std::vector<OpCase> round_weights_cases() {
  std::vector<OpCase> cases;
  for (const DType to : kFloats) {
    const Values values = awkward_values(DType::f32);
    const int64_t n = static_cast<int64_t>(values.size());
    CaseTensor dst{"dst", to, {n}, Values(values.size(), 7), {}, {}};
    for (const double v : values) dst.expected.push_back(rounded_weight(v, to));
    cases.push_back({fmt::format("to {}", name_of(to)),
                     {dst, {"src", DType::f32, {n}, values, {}, {}}},
                     [](Ops& ops, Stream& s, auto t) { ops.round_weights(s, t[0], t[1]); }});
  }
  return cases;
}

std::vector<OpCase> sum_of_squares_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : kFloats)
    for (const int64_t n : {1, 15, 4096, 3 * 4096 + 17})
      for (const bool faulty : {false, true}) {
        Values values = random_values(n, dtype, 1);
        double sum = 0;
        for (const double v : values) sum += v * v;
        CaseTensor out{"out",  DType::f64, {2},
                       {7, 7}, {sum, 0},   {sum * 1e-13, 0}};  // n roundings of 2^-53 at most
        if (faulty) {
          values.back() = n > 1 ? -kInfinity : kNaN;
          values.front() = kNaN;
          out.expected = {kNaN, n > 1 ? 2.0 : 1.0};
        }
        cases.push_back({fmt::format("{} {}{}", name_of(dtype), n, faulty ? " with faults" : ""),
                         {out, {"x", dtype, {n}, values, {}, {}}},
                         [](Ops& ops, Stream& s, auto t) { ops.sum_of_squares(s, t[0], t[1]); }});
      }
  return cases;
}

namespace {

/// Kingma & Ba, Loshchilov & Hutter, in double.
struct AdamReference {
  AdamHyper h;
  double lr, clip, loss_scale, prediction;
  int64_t t;
  Decay decay;
};

OpCase adam_case(const AdamReference& a, DType grad_type, DType weight_type, bool in_place) {
  const int64_t n = 333;
  CaseTensor master{"master", DType::f32, {n}, random_values(n, DType::f32, 1), {}, {}};
  CaseTensor m{"moment1", DType::f32, {n}, random_values(n, DType::f32, 2, 0.1), {}, {}}, v = m;
  v.name = "moment2";
  for (double& x : v.before) x = rounded(x * x, DType::f32);
  CaseTensor grad{"grad", grad_type, {n}, random_values(n, grad_type, 3, 2 * a.loss_scale), {}, {}};
  // without decay this element stays where it is, half way between two bf16 numbers
  master.before[5] = 1 + 0x1p-8;
  m.before[5] = v.before[5] = grad.before[5] = 0;
  CaseTensor weight{"weight_out", weight_type, {n}, Values(static_cast<size_t>(n), 7), {}, {}};
  const double unit = std::ldexp(1.0, -24), bias1 = 1 - std::pow(a.h.beta1, static_cast<double>(a.t)),
               bias2 = 1 - std::pow(a.h.beta2, static_cast<double>(a.t));
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const double p = master.before[i];
    double g = grad.before[i] * a.clip / a.loss_scale;
    if (a.decay == Decay::l2) g += a.h.weight_decay * p;
    const double m1 = a.h.beta1 * m.before[i] + (1 - a.h.beta1) * g;
    const double v1 = a.h.beta2 * v.before[i] + (1 - a.h.beta2) * g * g;
    const double step = a.lr * (m1 / bias1) / (std::sqrt(v1 / bias2) + a.h.eps);
    const double p1 = p - (a.decay == Decay::decoupled ? a.lr * a.h.weight_decay * p : 0) - step;
    m.expected.push_back(m1);
    m.allowed.push_back(4 * unit * (std::fabs(a.h.beta1 * m.before[i]) + std::fabs(g)));
    v.expected.push_back(v1);
    v.allowed.push_back(8 * unit * v1);
    master.expected.push_back(p1);
    // the step inherits m's absolute error
    const double step_error = std::fabs(step) * 12 * unit +
                              m.allowed[i] * std::fabs(a.lr / bias1) / (std::sqrt(v1 / bias2) + a.h.eps);
    master.allowed.push_back(2 * unit * std::fabs(p) + step_error);
    weight.expected.push_back(p1 + a.prediction * (p1 - p));
    weight.allowed.push_back(rounding_unit(weight_type) * std::fabs(weight.expected[i]) +
                             (1 + 2 * a.prediction) * (master.allowed[i] + 2 * unit * std::fabs(p)) +
                             (weight_type == DType::f16 ? std::ldexp(1.0, -25) : 0));
  }
  if (in_place) weight.before = grad.before;
  std::vector<CaseTensor> tensors = {master, m, v, weight};
  if (!in_place) tensors.push_back(grad);
  const AdamScalars scalars = adam_scalars(a.h, a.lr, a.t, a.clip, a.loss_scale);
  return {fmt::format("{} to {}, decay {}, prediction {}{}", name_of(grad_type), name_of(weight_type),
                      static_cast<int>(a.decay), a.prediction, in_place ? ", over the gradient" : ""),
          tensors, [=](Ops& ops, Stream& s, auto t) {
            ops.adam(s, {t[0], t[1], t[2], t[3], t[in_place ? 3 : 4]}, a.decay, scalars,
                     {static_cast<float>(a.prediction)});
          }};
}

}  // namespace

std::vector<OpCase> adam_cases() {
  std::vector<OpCase> cases;
  AdamReference a{.h = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true},
                  .lr = 3e-3,
                  .clip = 0.5,
                  .loss_scale = 64,
                  .prediction = 0,
                  .t = 3,
                  .decay = Decay::none};
  for (const DType grad : kFloats)
    for (const DType weight : kFloats)
      for (const Decay decay : {Decay::none, Decay::l2, Decay::decoupled})
        for (const double prediction : {0.0, 1.5}) {
          a.decay = decay;
          a.prediction = prediction;
          cases.push_back(adam_case(a, grad, weight, false));
          if (grad == weight) cases.push_back(adam_case(a, grad, weight, true));
        }
  return cases;
}

}  // namespace tandem::op_cases
