#include "gpu/host/kernels/pointwise.h"

#include <array>

namespace tandem::gpu {

namespace {

std::byte* element(const Tensor& t, int64_t i) {
  return t.bytes_at(static_cast<size_t>(i) * size_of(t.dtype()));
}

}  // namespace

void rope(Workers& workers, const KernelTools& tools, Tensor y, Tensor x, Tensor cos, Tensor sin,
          int direction) {
  const int64_t length = x.dim(1), heads = x.dim(2), width = x.dim(3), half = width / 2;
  share(workers, x.dim(0) * length, heads * width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* c = cos.data<float>() + row % length * half;
      const float* s = sin.data<float>() + row % length * half;
      for (int64_t h = row * heads; h < (row + 1) * heads; ++h)
        tools.rows.rope(element(y, h * width), element(x, h * width), x.dtype(), c, s,
                        static_cast<float>(direction), half);
    }
  });
}

void swiglu_forward(Workers& workers, const KernelTools& tools, Tensor y, Tensor gate, Tensor up) {
  share(workers, y.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.swiglu_forward(element(y, begin), element(gate, begin), element(up, begin), y.dtype(),
                              end - begin);
  });
}

void swiglu_backward(Workers& workers, const KernelTools& tools, Tensor dgate, Tensor dup, Tensor dy,
                     Tensor gate, Tensor up) {
  share(workers, dy.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.swiglu_backward(element(dgate, begin), element(dup, begin), element(dy, begin),
                               element(gate, begin), element(up, begin), dy.dtype(), end - begin);
  });
}

void gelu_forward(Workers& workers, const KernelTools& tools, Tensor y, Tensor x) {
  share(workers, y.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.gelu_forward(element(y, begin), element(x, begin), y.dtype(), end - begin);
  });
}

void gelu_backward(Workers& workers, const KernelTools& tools, Tensor dx, Tensor dy, Tensor x) {
  share(workers, dx.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.gelu_backward(element(dx, begin), element(dy, begin), element(x, begin), dx.dtype(),
                             end - begin);
  });
}

void add(Workers& workers, const KernelTools& tools, Tensor y, Tensor a, Tensor b) {
  share(workers, y.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.add(element(y, begin), element(a, begin), element(b, begin), y.dtype(), end - begin);
  });
}

void cast(Workers& workers, const KernelTools& tools, Tensor dst, Tensor src) {
  share(workers, dst.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.cast(element(dst, begin), dst.dtype(), element(src, begin), src.dtype(), end - begin);
  });
}

void round_weights(Workers& workers, const KernelTools& tools, Tensor dst, Tensor src) {
  share(workers, dst.numel(), 1, [&](int64_t begin, int64_t end) {
    tools.rows.round_weights(element(dst, begin), dst.dtype(), src.data<float>() + begin, end - begin);
  });
}

}  // namespace tandem::gpu
