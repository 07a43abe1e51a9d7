#pragma once
// The launches of gpu/kernels/launches.h on CUDA streams, for code that nvcc doesn't compile: arguments as
// there, scratch and its sizes too. Each returns the first failure to launch, or cudaSuccess; what fails
// later shows in the stream.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/dtype.h"
#include "core/math/adam_formula.h"

namespace tandem::gpu::cuda {

[[nodiscard]] cudaError_t embedding_forward(cudaStream_t stream, void* y, const void* table,
                                            const int32_t* tokens, DType act, int64_t count, int64_t width);
[[nodiscard]] cudaError_t embedding_backward(cudaStream_t stream, float* dtable, const void* dy,
                                             const int32_t* tokens, DType act, int64_t count, int64_t width);
[[nodiscard]] cudaError_t add_bias(cudaStream_t stream, void* y, const void* bias, DType act, int64_t rows,
                                   int64_t width);
[[nodiscard]] cudaError_t bias_backward(cudaStream_t stream, float* dbias, const void* dy, DType act,
                                        int64_t rows, int64_t width, void* scratch);
[[nodiscard]] cudaError_t rms_norm_forward(cudaStream_t stream, void* y, float* rstd, const void* x,
                                           const void* w, DType act, int64_t rows, int64_t width, float eps);
[[nodiscard]] cudaError_t rms_norm_backward(cudaStream_t stream, void* dx, float* dw, const void* dresidual,
                                            const void* dy, const void* x, const void* w, const float* rstd,
                                            DType act, int64_t rows, int64_t width, void* scratch);
[[nodiscard]] cudaError_t layer_norm_forward(cudaStream_t stream, void* y, float* mean, float* rstd,
                                             const void* x, const void* w, const void* b, DType act,
                                             int64_t rows, int64_t width, float eps);
[[nodiscard]] cudaError_t layer_norm_backward(cudaStream_t stream, void* dx, float* dw, float* db,
                                              const void* dresidual, const void* dy, const void* x,
                                              const void* w, const float* mean, const float* rstd, DType act,
                                              int64_t rows, int64_t width, void* scratch);
[[nodiscard]] cudaError_t rope(cudaStream_t stream, void* y, const void* x, const float* cos,
                               const float* sin, DType act, int direction, int64_t batch, int64_t length,
                               int64_t heads, int64_t head_dim);
[[nodiscard]] cudaError_t swiglu_forward(cudaStream_t stream, void* y, const void* gate, const void* up,
                                         DType act, int64_t n);
[[nodiscard]] cudaError_t swiglu_backward(cudaStream_t stream, void* dgate, void* dup, const void* dy,
                                          const void* gate, const void* up, DType act, int64_t n);
[[nodiscard]] cudaError_t gelu_forward(cudaStream_t stream, void* y, const void* x, DType act, int64_t n);
[[nodiscard]] cudaError_t gelu_backward(cudaStream_t stream, void* dx, const void* dy, const void* x,
                                        DType act, int64_t n);
[[nodiscard]] cudaError_t add(cudaStream_t stream, void* y, const void* a, const void* b, DType act,
                              int64_t n);
[[nodiscard]] cudaError_t cast(cudaStream_t stream, void* dst, DType dst_type, const void* src,
                               DType src_type, int64_t n);
[[nodiscard]] cudaError_t round_weights(cudaStream_t stream, void* dst, DType dst_type, const float* src,
                                        int64_t n);
[[nodiscard]] cudaError_t softmax_cross_entropy(cudaStream_t stream, double* loss, void* dlogits, DType act,
                                                const float* logits, const int32_t* targets, float scale,
                                                int64_t rows, int64_t width, void* scratch);
[[nodiscard]] cudaError_t sum_of_squares(cudaStream_t stream, double* out, const void* x, DType type,
                                         int64_t n, void* scratch);
[[nodiscard]] cudaError_t adam(cudaStream_t stream, void* weight_out, DType weight_type, const void* grad,
                               DType grad_type, float* master, float* moment1, float* moment2, int64_t n,
                               const AdamScalars& scalars, Decay decay, float prediction);

/// Bytes of scratch, for sums over the rows of [rows, width], for the losses of rows, and for the gradient
/// norm of n elements.
[[nodiscard]] int64_t column_sums_scratch(int64_t rows, int64_t width);
[[nodiscard]] int64_t cross_entropy_scratch(int64_t rows);
[[nodiscard]] int64_t sum_of_squares_scratch(int64_t n);

}  // namespace tandem::gpu::cuda
