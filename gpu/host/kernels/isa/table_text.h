#pragma once
// Text of an ISA file: its table. Included last, after the ISA's conversions.
#include "gpu/host/kernels/isa/adam_text.h"
#include "gpu/host/kernels/isa/layer_norm_text.h"
#include "gpu/host/kernels/isa/norm_text.h"
#include "gpu/host/kernels/isa/pointwise_text.h"
#include "gpu/host/kernels/isa/softmax_text.h"
#include "gpu/host/kernels/isa/squares_text.h"
#include "gpu/host/kernels/isa/tables.h"

namespace tandem::gpu::TANDEM_ISA {

const RowKernels kRowKernels = {
    .isa = Arch::name(),
    .cast = cast,
    .round_weights = round_weights,
    .add = add,
    .accumulate = accumulate,
    .dot = dot,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .rope = rope,
    .rms_norm_forward = rms_norm_forward,
    .rms_norm_backward = rms_norm_backward,
    .rms_norm_weight = rms_norm_weight,
    .leaf_squares = leaf_squares,
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .layer_norm_weight = layer_norm_weight,
    .softmax_sum = softmax_sum,
    .softmax_write = softmax_write,
    .softmax_backward = softmax_backward,
    .adam = adam,
};

}  // namespace tandem::gpu::TANDEM_ISA
