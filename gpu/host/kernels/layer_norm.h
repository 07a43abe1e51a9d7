#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

void layer_norm_forward(Workers&, const KernelTools&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                        Tensor b, float eps);
/// dresidual may be empty or dx. dw, db: one task per 64 columns, each over all rows in order.
void layer_norm_backward(Workers&, const KernelTools&, Tensor dx, Tensor dw, Tensor db, Tensor dresidual,
                         Tensor dy, Tensor x, Tensor w, Tensor mean, Tensor rstd);

}  // namespace tandem::gpu
