// The references of the op cases, proven: each backward equals the central differences of its forward, in
// double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/gpu/op_cases.h"

namespace tandem::op_cases {
namespace {

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
Values some(int64_t n, uint64_t seed, double size = 1) { return random_values(n, DType::f64, seed, size); }

/// d f / d x[i] by central differences against `gradient`. Third derivatives of these functions are below
/// 100, so the method's error is below 100 h^2 / 6 = 2e-9 and rounding's is about 1e-16 / h = 1e-11 times |f|
/// < 100.
void expect_gradient(const Values& x, const std::function<double(const Values&)>& f, const Values& gradient) {
  constexpr double h = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  for (size_t i = 0; i < x.size(); ++i) {
    Values up = x, down = x;
    up[i] += h;
    down[i] -= h;
    EXPECT_NEAR((f(up) - f(down)) / (2 * h), gradient[i], 1e-8 * (1 + std::fabs(gradient[i])))
        << "element " << i;
  }
}

TEST(NumbersOfReferences, LinearBackward) {
  const int64_t n = 3, in = 4, out = 5;
  const Values x = some(n * in, 1), w = some(out * in, 2), dy = some(n * out, 3);
  const auto y = [&](const Values& a, const Values& b) {
    return product(n, out, in, a, false, b, true).value;
  };
  expect_gradient(
      x, [&](const Values& v) { return dot(dy, y(v, w)); }, product(n, in, out, dy, false, w, false).value);
  expect_gradient(
      w, [&](const Values& v) { return dot(dy, y(x, v)); }, product(out, in, n, dy, true, x, false).value);
}

TEST(NumbersOfReferences, RmsNormBackward) {
  const Values x = some(3 * 5, 1), w = some(5, 2), dy = some(3 * 5, 3);
  const double eps = 1e-3;
  const NormBackward r = rms_norm_backward(dy, x, w, rms_norm_forward(x, w, eps).rstd.value);
  expect_gradient(
      x, [&](const Values& v) { return dot(dy, rms_norm_forward(v, w, eps).y.value); }, r.dx.value);
  expect_gradient(
      w, [&](const Values& v) { return dot(dy, rms_norm_forward(x, v, eps).y.value); }, r.dw.value);
}

TEST(NumbersOfReferences, RopeBackwardIsTheInverseRotation) {
  const int64_t length = 3, heads = 2, width = 4;
  Values cos, sin;
  for (const double angle : some(length * width / 2, 1, 3)) {
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  const Values x = some(2 * length * heads * width, 2), dy = some(2 * length * heads * width, 3);
  const auto turn = [&](const Values& v, int direction) {
    return rope(v, cos, sin, length, heads, width, direction).value;
  };
  expect_gradient(
      x, [&](const Values& v) { return dot(dy, turn(v, 1)); }, turn(dy, -1));
}

TEST(NumbersOfReferences, SwigluBackward) {
  const Values gate = some(9, 1, 5), up = some(9, 2), dy = some(9, 3);
  const SwigluBackward r = swiglu_backward(dy, gate, up);
  expect_gradient(
      gate, [&](const Values& v) { return dot(dy, swiglu_forward(v, up).value); }, r.dgate.value);
  expect_gradient(
      up, [&](const Values& v) { return dot(dy, swiglu_forward(gate, v).value); }, r.dup.value);
}

TEST(NumbersOfReferences, CrossEntropyGradient) {
  const Values logits = some(4 * 6, 1, 3);
  const std::vector<int32_t> targets = {5, -100, 0, 2};
  const auto loss = [&](const Values& v) {
    return 0.5 * softmax_cross_entropy(v, targets, 0.5).loss.value[0];
  };
  expect_gradient(logits, loss, softmax_cross_entropy(logits, targets, 0.5).dlogits.value);
}

TEST(NumbersOfReferences, AttentionBackward) {
  for (const int64_t window : {0, 2}) {
    const AttentionShape s{2, 4, 4, 2, 3, window, 0.6f};
    const Values q = some(2 * 4 * 4 * 3, 1), k = some(2 * 4 * 2 * 3, 2), v = some(2 * 4 * 2 * 3, 3),
                 dout = some(2 * 4 * 4 * 3, 4);
    const AttentionForward f = attention_forward(q, k, v, s);
    const AttentionBackward r = attention_backward(dout, q, k, v, f.out.value, f.lse.value, s);
    const auto loss = [&](const Values& a, const Values& b, const Values& c) {
      return dot(dout, attention_forward(a, b, c, s).out.value);
    };
    expect_gradient(
        q, [&](const Values& x) { return loss(x, k, v); }, r.dq.value);
    expect_gradient(
        k, [&](const Values& x) { return loss(q, x, v); }, r.dk.value);
    expect_gradient(
        v, [&](const Values& x) { return loss(q, k, x); }, r.dv.value);
  }
}

}  // namespace
}  // namespace tandem::op_cases
