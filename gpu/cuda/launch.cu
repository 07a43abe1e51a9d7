#include "gpu/cuda/launch.h"

#include "gpu/kernels/launches.h"

namespace tandem::gpu::cuda {

namespace {

/// What gpu/kernels/launches.h launches with: one stream, and the first failure.
class StreamLauncher {
 public:
  explicit StreamLauncher(cudaStream_t stream) : stream_(stream) {}
  template <class... Parameters, class... Arguments>
  void operator()(const char*, Grid grid, void (*kernel)(Parameters...), Arguments... arguments) {
    if (status_ != cudaSuccess) return;
    kernel<<<dim3(static_cast<unsigned>(grid.blocks)), dim3(static_cast<unsigned>(grid.threads)), 0,
             stream_>>>(arguments...);
    status_ = cudaGetLastError();
  }
  [[nodiscard]] cudaError_t status() const { return status_; }

 private:
  cudaStream_t stream_;
  cudaError_t status_ = cudaSuccess;
};

}  // namespace

cudaError_t embedding_forward(cudaStream_t stream, void* y, const void* table, const int32_t* tokens,
                              DType act, int64_t count, int64_t width) {
  StreamLauncher on(stream);
  simt_cuda::launch_embedding_forward(on, y, table, tokens, act, count, width);
  return on.status();
}

cudaError_t embedding_backward(cudaStream_t stream, float* dtable, const void* dy, const int32_t* tokens,
                               DType act, int64_t count, int64_t width) {
  StreamLauncher on(stream);
  simt_cuda::launch_embedding_backward(on, dtable, dy, tokens, act, count, width);
  return on.status();
}

cudaError_t add_bias(cudaStream_t stream, void* y, const void* bias, DType act, int64_t rows, int64_t width) {
  StreamLauncher on(stream);
  simt_cuda::launch_add_bias(on, y, bias, act, rows, width);
  return on.status();
}

cudaError_t bias_backward(cudaStream_t stream, float* dbias, const void* dy, DType act, int64_t rows,
                          int64_t width, void* scratch) {
  StreamLauncher on(stream);
  simt_cuda::launch_bias_backward(on, dbias, dy, act, rows, width, scratch);
  return on.status();
}

cudaError_t rms_norm_forward(cudaStream_t stream, void* y, float* rstd, const void* x, const void* w,
                             DType act, int64_t rows, int64_t width, float eps) {
  StreamLauncher on(stream);
  simt_cuda::launch_rms_norm_forward(on, y, rstd, x, w, act, rows, width, eps);
  return on.status();
}

cudaError_t rms_norm_backward(cudaStream_t stream, void* dx, float* dw, const void* dresidual, const void* dy,
                              const void* x, const void* w, const float* rstd, DType act, int64_t rows,
                              int64_t width, void* scratch) {
  StreamLauncher on(stream);
  simt_cuda::launch_rms_norm_backward(on, dx, dw, dresidual, dy, x, w, rstd, act, rows, width, scratch);
  return on.status();
}

cudaError_t layer_norm_forward(cudaStream_t stream, void* y, float* mean, float* rstd, const void* x,
                               const void* w, const void* b, DType act, int64_t rows, int64_t width,
                               float eps) {
  StreamLauncher on(stream);
  simt_cuda::launch_layer_norm_forward(on, y, mean, rstd, x, w, b, act, rows, width, eps);
  return on.status();
}

cudaError_t layer_norm_backward(cudaStream_t stream, void* dx, float* dw, float* db, const void* dresidual,
                                const void* dy, const void* x, const void* w, const float* mean,
                                const float* rstd, DType act, int64_t rows, int64_t width, void* scratch) {
  StreamLauncher on(stream);
  simt_cuda::launch_layer_norm_backward(on, dx, dw, db, dresidual, dy, x, w, mean, rstd, act, rows, width,
                                        scratch);
  return on.status();
}

cudaError_t rope(cudaStream_t stream, void* y, const void* x, const float* cos, const float* sin, DType act,
                 int direction, int64_t batch, int64_t length, int64_t heads, int64_t head_dim) {
  StreamLauncher on(stream);
  simt_cuda::launch_rope(on, y, x, cos, sin, act, direction, batch, length, heads, head_dim);
  return on.status();
}

cudaError_t swiglu_forward(cudaStream_t stream, void* y, const void* gate, const void* up, DType act,
                           int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_swiglu_forward(on, y, gate, up, act, n);
  return on.status();
}

cudaError_t swiglu_backward(cudaStream_t stream, void* dgate, void* dup, const void* dy, const void* gate,
                            const void* up, DType act, int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_swiglu_backward(on, dgate, dup, dy, gate, up, act, n);
  return on.status();
}

cudaError_t gelu_forward(cudaStream_t stream, void* y, const void* x, DType act, int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_gelu_forward(on, y, x, act, n);
  return on.status();
}

cudaError_t gelu_backward(cudaStream_t stream, void* dx, const void* dy, const void* x, DType act,
                          int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_gelu_backward(on, dx, dy, x, act, n);
  return on.status();
}

cudaError_t add(cudaStream_t stream, void* y, const void* a, const void* b, DType act, int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_add(on, y, a, b, act, n);
  return on.status();
}

cudaError_t cast(cudaStream_t stream, void* dst, DType dst_type, const void* src, DType src_type, int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_cast(on, dst, dst_type, src, src_type, n);
  return on.status();
}

cudaError_t round_weights(cudaStream_t stream, void* dst, DType dst_type, const float* src, int64_t n) {
  StreamLauncher on(stream);
  simt_cuda::launch_round_weights(on, dst, dst_type, src, n);
  return on.status();
}

cudaError_t softmax_cross_entropy(cudaStream_t stream, double* loss, void* dlogits, DType act,
                                  const float* logits, const int32_t* targets, float scale, int64_t rows,
                                  int64_t width, void* scratch) {
  StreamLauncher on(stream);
  simt_cuda::launch_softmax_cross_entropy(on, loss, dlogits, act, logits, targets, scale, rows, width,
                                          scratch);
  return on.status();
}

cudaError_t sum_of_squares(cudaStream_t stream, double* out, const void* x, DType type, int64_t n,
                           void* scratch) {
  StreamLauncher on(stream);
  simt_cuda::launch_sum_of_squares(on, out, x, type, n, scratch);
  return on.status();
}

cudaError_t adam(cudaStream_t stream, void* weight_out, DType weight_type, const void* grad, DType grad_type,
                 float* master, float* moment1, float* moment2, int64_t n, const AdamScalars& scalars,
                 Decay decay, float prediction) {
  StreamLauncher on(stream);
  simt_cuda::launch_adam(on, weight_out, weight_type, grad, grad_type, decay,
                         {master, moment1, moment2, n, scalars, prediction});
  return on.status();
}

int64_t column_sums_scratch(int64_t rows, int64_t width) {
  return simt_cuda::column_sums_scratch(rows, width);
}
int64_t cross_entropy_scratch(int64_t rows) { return simt_cuda::cross_entropy_scratch(rows); }
int64_t sum_of_squares_scratch(int64_t n) { return simt_cuda::sum_of_squares_scratch(n); }

}  // namespace tandem::gpu::cuda
