#include "gpu/host/kernels/norm.h"

#include "gpu/host/kernels/area.h"

namespace tandem::gpu {

void rms_norm_forward(Workers& workers, const KernelTools& tools, Tensor y, Tensor rstd, Tensor x, Tensor w,
                      float eps) {
  const int64_t width = x.dim(1);
  share(workers, x.dim(0), width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      rstd.data<float>()[r] =
          tools.rows.rms_norm_forward(address(y, r, 0), address(x, r, 0), w.raw(), x.dtype(), eps, width);
  });
}

void rms_norm_backward(Workers& workers, const KernelTools& tools, Tensor dx, Tensor dw, Tensor dresidual,
                       Tensor dy, Tensor x, Tensor w, Tensor rstd) {
  constexpr int64_t kColumns = 64;
  const int64_t rows = x.dim(0), width = x.dim(1);
  const float* r = rstd.data<float>();
  // dw first: dx may be written over what it reads
  const int64_t trained = dw.empty() ? 0 : width;
  workers.ranges(trained, kColumns, [&](int64_t begin, int64_t end) {
    tools.rows.rms_norm_weight(dw.data<float>(), dy.raw(), x.raw(), r, x.dtype(), rows, width, begin, end);
  });
  share(workers, rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      tools.rows.rms_norm_backward(address(dx, i, 0), dresidual.empty() ? nullptr : address(dresidual, i, 0),
                                   address(dy, i, 0), address(x, i, 0), w.raw(), x.dtype(), r[i], width);
  });
}

}  // namespace tandem::gpu
