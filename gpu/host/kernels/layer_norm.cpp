#include "gpu/host/kernels/layer_norm.h"

#include "gpu/host/kernels/area.h"
#include "gpu/host/kernels/bias.h"

namespace tandem::gpu {

void layer_norm_forward(Workers& workers, const KernelTools& tools, Tensor y, Tensor mean, Tensor rstd,
                        Tensor x, Tensor w, Tensor b, float eps) {
  const int64_t width = x.dim(1);
  share(workers, x.dim(0), width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const RowMoments moments = tools.rows.layer_norm_forward(address(y, r, 0), address(x, r, 0), w.raw(),
                                                               b.raw(), x.dtype(), eps, width);
      mean.data<float>()[r] = moments.mean;
      rstd.data<float>()[r] = moments.rstd;
    }
  });
}

void layer_norm_backward(Workers& workers, const KernelTools& tools, Tensor dx, Tensor dw, Tensor db,
                         Tensor dresidual, Tensor dy, Tensor x, Tensor w, Tensor mean, Tensor rstd) {
  constexpr int64_t kColumns = 64;
  const int64_t rows = x.dim(0), width = x.dim(1);
  const auto moments = [&](int64_t r) { return RowMoments{mean.data<float>()[r], rstd.data<float>()[r]}; };
  // dw and db first: dx may be written over what they read
  if (!db.empty()) bias_backward(workers, tools, db, dy);
  const int64_t trained = dw.empty() ? 0 : width;
  workers.ranges(trained, kColumns, [&](int64_t begin, int64_t end) {
    tools.rows.layer_norm_weight(dw.data<float>(), dy.raw(), x.raw(), mean.data<float>(), rstd.data<float>(),
                                 x.dtype(), rows, width, begin, end);
  });
  share(workers, rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      tools.rows.layer_norm_backward(
          address(dx, r, 0), dresidual.empty() ? nullptr : address(dresidual, r, 0), address(dy, r, 0),
          address(x, r, 0), w.raw(), x.dtype(), moments(r), width);
  });
}

}  // namespace tandem::gpu
