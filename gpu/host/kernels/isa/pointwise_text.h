#pragma once
// Text of an ISA file: casts, additions, SwiGLU, rotary.
#include "gpu/host/kernels/isa/loops.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

void cast(void* dst, DType dst_type, const void* src, DType src_type, int64_t n) {
  with_type(dst_type, [&](auto d) {
    with_type(src_type, [&](auto s) {
      auto* to = as<decltype(d)>(dst);
      const auto* from = as<decltype(s)>(src);
      for_vectors(0, n, [&](int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
    });
  });
}

void round_weights(void* dst, DType dst_type, const float* src, int64_t n) {
  with_type(dst_type, [&](auto d) {
    auto* to = as<decltype(d)>(dst);
    for_vectors(0, n, [&](int64_t i, auto lanes) { store_weight(to + i, load(src + i, lanes), lanes); });
  });
}

void add(void* y, const void* a, const void* b, DType act, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      store(as<T>(y) + i, load(as<T>(a) + i, lanes) + load(as<T>(b) + i, lanes), lanes);
    });
  });
}

void accumulate(float* sum, const void* x, DType act, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      store(sum + i, load(sum + i, lanes) + load(as<T>(x) + i, lanes), lanes);
    });
  });
}

double dot(const void* a, const void* b, DType act, int64_t n) {
  double sum = 0;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    sum = row_sum(
        n, [&](int64_t i, auto lanes) { return load(as<T>(a) + i, lanes) * load(as<T>(b) + i, lanes); });
  });
  return sum;
}

inline Floats sigmoid(Floats x) { return Floats(1.0f) / (Floats(1.0f) + xsimd::exp(-x)); }

void swiglu_forward(void* y, const void* gate, const void* up, DType act, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      const Floats g = load(as<T>(gate) + i, lanes);
      store(as<T>(y) + i, g * sigmoid(g) * load(as<T>(up) + i, lanes), lanes);
    });
  });
}

void swiglu_backward(void* dgate, void* dup, const void* dy, const void* gate, const void* up, DType act,
                     int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      const Floats g = load(as<T>(gate) + i, lanes), u = load(as<T>(up) + i, lanes);
      const Floats d = load(as<T>(dy) + i, lanes), s = sigmoid(g);
      // silu'(g) = s * (1 + g * (1 - s))
      store(as<T>(dgate) + i, d * u * (s * (Floats(1.0f) + g * (Floats(1.0f) - s))), lanes);
      store(as<T>(dup) + i, d * (g * s), lanes);
    });
  });
}

/// 2 sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + tanh(u/2)) is the sigmoid of u.
constexpr float kGeluSlope = 1.5957691216057308f, kGeluCube = 0.044715f;
inline Floats gelu_argument(Floats x) { return Floats(kGeluSlope) * (x + Floats(kGeluCube) * x * x * x); }

void gelu_forward(void* y, const void* x, DType act, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      const Floats v = load(as<T>(x) + i, lanes);
      store(as<T>(y) + i, v * sigmoid(gelu_argument(v)), lanes);
    });
  });
}

void gelu_backward(void* dx, const void* dy, const void* x, DType act, int64_t n) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, n, [&](int64_t i, auto lanes) {
      const Floats v = load(as<T>(x) + i, lanes), s = sigmoid(gelu_argument(v));
      // (v s(u(v)))' = s + v s (1 - s) u'
      const Floats slope = Floats(kGeluSlope) * (Floats(1.0f) + Floats(3.0f * kGeluCube) * v * v);
      store(as<T>(dx) + i, load(as<T>(dy) + i, lanes) * (s + v * s * (Floats(1.0f) - s) * slope), lanes);
    });
  });
}

void rope(void* y, const void* x, DType act, const float* cos, const float* sin, float sign, int64_t half) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    for_vectors(0, half, [&](int64_t i, auto lanes) {
      const Floats x1 = load(as<T>(x) + i, lanes), x2 = load(as<T>(x) + half + i, lanes);
      const Floats c = load(cos + i, lanes), s = load(sin + i, lanes) * Floats(sign);
      store(as<T>(y) + i, x1 * c - x2 * s, lanes);
      store(as<T>(y) + half + i, x2 * c + x1 * s, lanes);
    });
  });
}

/// Adds to out[c], for the at most 64 columns [begin, end), the sum over rows of term(row, column, lanes): in
/// blocks of 32 rows, then over the blocks, which is shallow enough for thousands of rows.
template <class Term>
void add_column_sums(float* out, int64_t rows, int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kColumns = 64, kRows = 32;
  float total[kColumns] = {};
  for (int64_t block = 0; block < rows; block += kRows) {
    float sum[kColumns] = {};
    for (int64_t row = block; row < block + kRows && row < rows; ++row)
      for_vectors(0, end - begin, [&](int64_t i, auto lanes) {
        store(sum + i, load(sum + i, lanes) + term(row, begin + i, lanes), lanes);
      });
    accumulate(total, sum, DType::f32, end - begin);
  }
  accumulate(out + begin, total, DType::f32, end - begin);
}

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
