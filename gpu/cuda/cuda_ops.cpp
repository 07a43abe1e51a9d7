#include "gpu/cuda/cuda_ops.h"

#include <algorithm>

#include "gpu/cuda/launch.h"
#include "gpu/ops_checks.h"

namespace tandem::gpu::cuda {

namespace {

/// nullptr for a tensor that the call leaves out.
float* floats(const Tensor& t) { return t.empty() ? nullptr : t.data<float>(); }
const void* raw(const Tensor& t) { return t.empty() ? nullptr : t.raw(); }

}  // namespace

void* CudaOps::workspace(Stream& stream, int64_t bytes) {
  return device_.workspace(stream,
                           std::max(product_workspace_bytes(capability_), static_cast<size_t>(bytes)));
}

void* CudaOps::sums_workspace(Stream& stream, const Tensor& x) {
  return workspace(stream, column_sums_scratch(x.dim(0), x.dim(1)));
}

void CudaOps::embedding_forward(Stream& stream, Tensor y, Tensor table, Tensor tokens) {
  checks::embedding_forward(y, table, tokens);
  run(stream, "embedding_forward", cuda::embedding_forward, y.raw(), table.raw(), tokens.data<int32_t>(),
      y.dtype(), y.dim(0), y.dim(1));
}
void CudaOps::embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor tokens) {
  checks::embedding_backward(dtable, dy, tokens);
  run(stream, "embedding_backward", cuda::embedding_backward, dtable.data<float>(), dy.raw(),
      tokens.data<int32_t>(), dy.dtype(), dy.dim(0), dy.dim(1));
}

void CudaOps::rms_norm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) {
  checks::rms_norm_forward(y, rstd, x, w);
  run(stream, "rms_norm_forward", cuda::rms_norm_forward, y.raw(), rstd.data<float>(), x.raw(), w.raw(),
      x.dtype(), x.dim(0), x.dim(1), eps);
}
void CudaOps::rms_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy, Tensor x,
                                Tensor w, Tensor rstd) {
  checks::rms_norm_backward(dx, dw, dresidual, dy, x, w, rstd);
  run(stream, "rms_norm_backward", cuda::rms_norm_backward, dx.raw(), floats(dw), raw(dresidual), dy.raw(),
      x.raw(), w.raw(), rstd.data<float>(), x.dtype(), x.dim(0), x.dim(1), sums_workspace(stream, x));
}
void CudaOps::layer_norm_forward(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                                 Tensor b, float eps) {
  checks::layer_norm_forward(y, mean, rstd, x, w, b);
  run(stream, "layer_norm_forward", cuda::layer_norm_forward, y.raw(), mean.data<float>(), rstd.data<float>(),
      x.raw(), w.raw(), b.raw(), x.dtype(), x.dim(0), x.dim(1), eps);
}
void CudaOps::layer_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor db, Tensor dresidual,
                                  Tensor dy, Tensor x, Tensor w, Tensor mean, Tensor rstd) {
  checks::layer_norm_backward(dx, dw, db, dresidual, dy, x, w, mean, rstd);
  run(stream, "layer_norm_backward", cuda::layer_norm_backward, dx.raw(), floats(dw), floats(db),
      raw(dresidual), dy.raw(), x.raw(), w.raw(), mean.data<float>(), rstd.data<float>(), x.dtype(), x.dim(0),
      x.dim(1), sums_workspace(stream, x));
}

void CudaOps::linear_forward(Stream& stream, Tensor y, Tensor x, Tensor w, Into into) {
  multiply(stream, Storage::nt, y, x, w, into);
}
void CudaOps::linear_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, Into into) {
  multiply(stream, Storage::nn, dx, dy, w, into);
}
void CudaOps::linear_backward_weight(Stream& stream, Tensor dw, Tensor dy, Tensor x) {
  checks::weight_gradient(dw);
  multiply(stream, Storage::tn, dw, dy, x, Into::add);
}
void CudaOps::multiply(Stream& stream, Storage storage, const Tensor& c, const Tensor& a, const Tensor& b,
                       Into into) {
  checks::product(verb_of(storage), storage, c, a, b);
  void* const memory = workspace(stream);
  const cudaStream_t handle = device_.handle(stream);
  try {
    products_.enqueue(handle, memory, storage, c, a, b, into);
  } catch (const Error&) {
    device_.fail(std::current_exception());
    throw;
  }
}

void CudaOps::add_bias(Stream& stream, Tensor y, Tensor bias) {
  checks::add_bias(y, bias);
  run(stream, "add_bias", cuda::add_bias, y.raw(), bias.raw(), y.dtype(), y.dim(0), y.dim(1));
}
void CudaOps::bias_backward(Stream& stream, Tensor dbias, Tensor dy) {
  checks::bias_backward(dbias, dy);
  run(stream, "bias_backward", cuda::bias_backward, dbias.data<float>(), dy.raw(), dy.dtype(), dy.dim(0),
      dy.dim(1), sums_workspace(stream, dy));
}

void CudaOps::rope(Stream& stream, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction) {
  checks::rope(y, x, cos, sin, direction);
  run(stream, "rope", cuda::rope, y.raw(), x.raw(), cos.data<float>(), sin.data<float>(), x.dtype(),
      direction, x.dim(0), x.dim(1), x.dim(2), x.dim(3));
}

void CudaOps::swiglu_forward(Stream& stream, Tensor y, Tensor gate, Tensor up) {
  checks::swiglu_forward(y, gate, up);
  run(stream, "swiglu_forward", cuda::swiglu_forward, y.raw(), gate.raw(), up.raw(), y.dtype(), y.numel());
}
void CudaOps::swiglu_backward(Stream& stream, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
  checks::swiglu_backward(dgate, dup, dy, gate, up);
  run(stream, "swiglu_backward", cuda::swiglu_backward, dgate.raw(), dup.raw(), dy.raw(), gate.raw(),
      up.raw(), dy.dtype(), dy.numel());
}
void CudaOps::gelu_forward(Stream& stream, Tensor y, Tensor x) {
  checks::gelu_forward(y, x);
  run(stream, "gelu_forward", cuda::gelu_forward, y.raw(), x.raw(), x.dtype(), x.numel());
}
void CudaOps::gelu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x) {
  checks::gelu_backward(dx, dy, x);
  run(stream, "gelu_backward", cuda::gelu_backward, dx.raw(), dy.raw(), x.raw(), x.dtype(), x.numel());
}
void CudaOps::add(Stream& stream, Tensor y, Tensor a, Tensor b) {
  checks::add(y, a, b);
  run(stream, "add", cuda::add, y.raw(), a.raw(), b.raw(), y.dtype(), y.numel());
}
void CudaOps::cast(Stream& stream, Tensor dst, Tensor src) {
  checks::cast(dst, src);
  run(stream, "cast", cuda::cast, dst.raw(), dst.dtype(), src.raw(), src.dtype(), src.numel());
}

void CudaOps::softmax_cross_entropy(Stream& stream, Tensor loss, Tensor dlogits, Tensor logits,
                                    Tensor targets, float scale) {
  checks::softmax_cross_entropy(loss, dlogits, logits, targets);
  const bool wanted = !dlogits.empty();
  run(stream, "softmax_cross_entropy", cuda::softmax_cross_entropy, loss.data<double>(),
      wanted ? dlogits.raw() : nullptr, wanted ? dlogits.dtype() : DType::f32, logits.data<float>(),
      targets.data<int32_t>(), scale, logits.dim(0), logits.dim(1),
      workspace(stream, cross_entropy_scratch(logits.dim(0))));
}

void CudaOps::sum_of_squares(Stream& stream, Tensor out, Tensor x) {
  checks::sum_of_squares(out, x);
  run(stream, "sum_of_squares", cuda::sum_of_squares, out.data<double>(), x.raw(), x.dtype(), x.numel(),
      workspace(stream, sum_of_squares_scratch(x.numel())));
}
void CudaOps::adam(Stream& stream, const AdamTensors& t, Decay decay, const AdamScalars& scalars,
                   AdamPublish publish) {
  checks::adam(t);
  run(stream, "adam", cuda::adam, t.weight_out.raw(), t.weight_out.dtype(), t.grad.raw(), t.grad.dtype(),
      t.master.data<float>(), t.moment1.data<float>(), t.moment2.data<float>(), t.master.numel(), scalars,
      decay, publish.prediction);
}
void CudaOps::round_weights(Stream& stream, Tensor dst, Tensor src) {
  checks::round_weights(dst, src);
  run(stream, "round_weights", cuda::round_weights, dst.raw(), dst.dtype(), src.data<float>(), src.numel());
}

}  // namespace tandem::gpu::cuda
