#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

/// y may be x.
void rope(Workers&, const KernelTools&, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction);
void swiglu_forward(Workers&, const KernelTools&, Tensor y, Tensor gate, Tensor up);
/// dgate may be gate, dup may be up.
void swiglu_backward(Workers&, const KernelTools&, Tensor dgate, Tensor dup, Tensor dy, Tensor gate,
                     Tensor up);
void gelu_forward(Workers&, const KernelTools&, Tensor y, Tensor x);
/// dx may be x.
void gelu_backward(Workers&, const KernelTools&, Tensor dx, Tensor dy, Tensor x);
/// y may be a or b.
void add(Workers&, const KernelTools&, Tensor y, Tensor a, Tensor b);
void cast(Workers&, const KernelTools&, Tensor dst, Tensor src);
void round_weights(Workers&, const KernelTools&, Tensor dst, Tensor src);

}  // namespace tandem::gpu
