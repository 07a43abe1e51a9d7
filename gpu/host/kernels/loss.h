#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

/// Reads a row of logits twice (once more for its largest element), writes a row of dlogits once. dlogits may
/// be empty, or the logits if both are fp32.
void softmax_cross_entropy(Workers&, const KernelTools&, Tensor loss, Tensor dlogits, Tensor logits,
                           Tensor targets, float scale);

}  // namespace tandem::gpu
