#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

void add_bias(Workers&, const KernelTools&, Tensor y, Tensor bias);
/// One task per 64 columns, each over all rows in order.
void bias_backward(Workers&, const KernelTools&, Tensor dbias, Tensor dy);

}  // namespace tandem::gpu
