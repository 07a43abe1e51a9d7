#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

void embedding_forward(Workers&, const KernelTools&, Tensor y, Tensor table, Tensor tokens);
/// One task per range of columns, each over all tokens in order.
void embedding_backward(Workers&, const KernelTools&, Tensor dtable, Tensor dy, Tensor tokens);

}  // namespace tandem::gpu
