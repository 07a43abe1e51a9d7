#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

void rms_norm_forward(Workers&, const KernelTools&, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps);
/// dresidual may be empty or dx. dw: one task per 64 columns, each over all rows in order.
void rms_norm_backward(Workers&, const KernelTools&, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy,
                       Tensor x, Tensor w, Tensor rstd);

}  // namespace tandem::gpu
