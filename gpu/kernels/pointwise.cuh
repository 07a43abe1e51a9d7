#pragma once
// Element by element. Every kernel: one pack of eight elements a thread; reads its inputs once, writes its
// outputs once, 16 bytes at a time where all of them are so aligned. Arrays are [n], in memory order. An
// output may be the memory of an input of its own type.
#include "gpu/kernels/pack.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// dst[i] = src[i], rounded to nearest even.
template <class To, class From>
KERNEL void cast(To* dst, const From* src, int64_t n) {
  for_grid(n, aligned(dst, src), [&](int64_t i, Part part) { store(dst + i, load(src + i, part), part); });
}

/// dst[i] = round_weight(src[i]).
template <class To>
KERNEL void round_weights(To* dst, const float* src, int64_t n) {
  for_grid(n, aligned(dst, src),
           [&](int64_t i, Part part) { store_weight(dst + i, load(src + i, part), part); });
}

/// y[i] = a[i] + b[i].
template <class T>
KERNEL void add(T* y, const T* a, const T* b, int64_t n) {
  for_grid(n, aligned(y, a, b), [&](int64_t i, Part part) {
    const Pack x1 = load(a + i, part), x2 = load(b + i, part);
    store(y + i, pack_of([&](int k) { return x1.x[k] + x2.x[k]; }), part);
  });
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// y = g * sigmoid(g) * u with g = gate[i], u = up[i].
template <class T>
KERNEL void swiglu_forward(T* y, const T* gate, const T* up, int64_t n) {
  for_grid(n, aligned(y, gate, up), [&](int64_t i, Part part) {
    const Pack g = load(gate + i, part), u = load(up + i, part);
    store(y + i, pack_of([&](int k) { return g.x[k] * sigmoid(g.x[k]) * u.x[k]; }), part);
  });
}

/// dgate = dy * u * s * (1 + g * (1 - s)), dup = dy * g * s with s = sigmoid(g).
template <class T>
KERNEL void swiglu_backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, int64_t n) {
  for_grid(n, aligned(dgate, dup, dy, gate, up), [&](int64_t i, Part part) {
    const Pack d = load(dy + i, part), g = load(gate + i, part), u = load(up + i, part);
    const Pack s = pack_of([&](int k) { return sigmoid(g.x[k]); });
    const auto slope = [&](int k) { return s.x[k] * (1.0f + g.x[k] * (1.0f - s.x[k])); };
    store(dgate + i, pack_of([&](int k) { return d.x[k] * u.x[k] * slope(k); }), part);
    store(dup + i, pack_of([&](int k) { return d.x[k] * (g.x[k] * s.x[k]); }), part);
  });
}

/// 2 sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + tanh(u/2)) is the sigmoid of u.
constexpr float kGeluSlope = 1.5957691216057308f, kGeluCube = 0.044715f;
DEVICE float gelu_sigmoid(float x) { return sigmoid(kGeluSlope * (x + kGeluCube * x * x * x)); }

/// y = x * s(x), "gelu_new", with s = gelu_sigmoid.
template <class T>
KERNEL void gelu_forward(T* y, const T* x, int64_t n) {
  for_grid(n, aligned(y, x), [&](int64_t i, Part part) {
    const Pack v = load(x + i, part);
    store(y + i, pack_of([&](int k) { return v.x[k] * gelu_sigmoid(v.x[k]); }), part);
  });
}

/// dx = dy * (s + x * s * (1 - s) * u'), u' the slope of the sigmoid's argument.
template <class T>
KERNEL void gelu_backward(T* dx, const T* dy, const T* x, int64_t n) {
  for_grid(n, aligned(dx, dy, x), [&](int64_t i, Part part) {
    const Pack v = load(x + i, part), d = load(dy + i, part);
    const auto slope = [&](float at) {
      const float s = gelu_sigmoid(at), argument = kGeluSlope * (1.0f + 3.0f * kGeluCube * at * at);
      return s + at * s * (1.0f - s) * argument;
    };
    store(dx + i, pack_of([&](int k) { return d.x[k] * slope(v.x[k]); }), part);
  });
}

}  // namespace tandem::gpu::TANDEM_SIMT
