#pragma once
// The one list of what gpu/kernels/launches.h launches, for those who look at launches without running them.
#include "gpu/kernels/launches.h"

namespace tandem::simt {

/// Every op over [rows, width] activations of one type, or as many elements, but the gradient norm, which
/// launches even for none. width: a multiple of head_dim. No memory is touched: on notes its calls.
template <class Launcher>
void launch_each(Launcher& on, DType act, int64_t rows, int64_t width, int64_t head_dim) {
  namespace kernels = gpu::TANDEM_SIMT;
  float* const f = nullptr;
  float sums = 0;  // a gradient that is wanted
  const int64_t n = rows * width;
  kernels::launch_embedding_forward(on, f, f, nullptr, act, rows, width);
  kernels::launch_embedding_backward(on, f, f, nullptr, act, rows, width);
  kernels::launch_add_bias(on, f, f, act, rows, width);
  kernels::launch_bias_backward(on, &sums, f, act, rows, width, f);
  kernels::launch_rms_norm_forward(on, f, f, f, f, act, rows, width, 0);
  kernels::launch_rms_norm_backward(on, f, &sums, f, f, f, f, f, act, rows, width, f);
  kernels::launch_layer_norm_forward(on, f, f, f, f, f, f, act, rows, width, 0);
  kernels::launch_layer_norm_backward(on, f, &sums, &sums, f, f, f, f, f, f, act, rows, width, f);
  kernels::launch_rope(on, f, f, f, f, act, 1, 1, rows, width / head_dim, head_dim);
  kernels::launch_swiglu_forward(on, f, f, f, act, n);
  kernels::launch_swiglu_backward(on, f, f, f, f, f, act, n);
  kernels::launch_gelu_forward(on, f, f, act, n);
  kernels::launch_gelu_backward(on, f, f, f, act, n);
  kernels::launch_add(on, f, f, f, act, n);
  kernels::launch_softmax_cross_entropy(on, nullptr, f, act, f, nullptr, 1, rows, width, f);
  kernels::launch_round_weights(on, f, act, f, n);
  for (const DType other : {DType::f32, DType::bf16, DType::f16}) {
    kernels::launch_cast(on, f, act, f, other, n);
    for (const Decay decay : {Decay::none, Decay::l2, Decay::decoupled})
      kernels::launch_adam(on, f, act, f, other, decay, {f, f, f, n, {}, 0});
  }
}

}  // namespace tandem::simt
