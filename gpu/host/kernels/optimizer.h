#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "core/device/ops.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

void sum_of_squares(Workers&, const KernelTools&, Tensor out, Tensor x);
void adam(Workers&, const KernelTools&, Tensor master, Tensor moment1, Tensor moment2, Tensor weight_out,
          Tensor grad, Decay, AdamScalars, AdamPublish);

}  // namespace tandem::gpu
