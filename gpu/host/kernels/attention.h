#pragma once
// Kernels over readable tensors; shapes as in core/device/ops.h.
#include "core/base/tensor.h"
#include "core/device/ops.h"
#include "gpu/host/kernels/kernel_tools.h"

namespace tandem::gpu {

/// One task per (batch, query head, 64 query rows): scores of the tile against the keys that it sees,
/// softmax, times the values.
void attention_forward(Workers&, const KernelTools&, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                       AttentionShape);
/// One task per (batch, kv head): probabilities again from lse, dk and dv summed in fp32 over the group's
/// query heads and their tiles in order.
void attention_backward(Workers&, const KernelTools&, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, AttentionShape);

/// Floats of scratch that one task of either needs at most.
int64_t attention_scratch_floats(int64_t length, int64_t head_dim);

}  // namespace tandem::gpu
