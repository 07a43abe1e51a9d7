#pragma once
#include <memory>
#include <string_view>
#include <utility>

#include "core/device/ops.h"
#include "gpu/cuda/cuda_device.h"
#include "gpu/cuda/products.h"

namespace tandem::gpu::cuda {

/// The ops of the CUDA device: the checks of gpu/ops_checks.h, then launches and products. What fails poisons
/// the device. Products and the partial sums of kernels share the stream's workspace: the products' bytes,
/// which are a function of the architecture; more only for sums over very many rows or elements. Abstract:
/// attention has no kernels yet.
class CudaOps : public Ops {
 public:
  /// capability: of the device's card, 90 for 9.0. Error(failed) if cuBLASLt does not start. The device must
  /// outlive it.
  CudaOps(CudaDevice& device, const CublasLt& lt, int capability, AlgorithmTable table = {})
      : device_(device), products_(lt, capability, std::move(table)), capability_(capability) {}

  [[nodiscard]] const Products& products() const { return products_; }

  void embedding_forward(Stream& stream, Tensor y, Tensor table, Tensor tokens) override;
  void embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor tokens) override;
  void rms_norm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) override;
  void rms_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy, Tensor x,
                         Tensor w, Tensor rstd) override;
  void layer_norm_forward(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b,
                          float eps) override;
  void layer_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor db, Tensor dresidual, Tensor dy,
                           Tensor x, Tensor w, Tensor mean, Tensor rstd) override;
  void linear_forward(Stream& stream, Tensor y, Tensor x, Tensor w, Into into) override;
  void linear_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, Into into) override;
  void linear_backward_weight(Stream& stream, Tensor dw, Tensor dy, Tensor x) override;
  void add_bias(Stream& stream, Tensor y, Tensor bias) override;
  void bias_backward(Stream& stream, Tensor dbias, Tensor dy) override;
  void rope(Stream& stream, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction) override;
  void swiglu_forward(Stream& stream, Tensor y, Tensor gate, Tensor up) override;
  void swiglu_backward(Stream& stream, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override;
  void gelu_forward(Stream& stream, Tensor y, Tensor x) override;
  void gelu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x) override;
  void add(Stream& stream, Tensor y, Tensor a, Tensor b) override;
  void cast(Stream& stream, Tensor dst, Tensor src) override;
  void softmax_cross_entropy(Stream& stream, Tensor loss, Tensor dlogits, Tensor logits, Tensor targets,
                             float scale) override;
  void sum_of_squares(Stream& stream, Tensor out, Tensor x) override;
  void adam(Stream& stream, const AdamTensors& t, Decay decay, const AdamScalars& scalars,
            AdamPublish publish) override;
  void round_weights(Stream& stream, Tensor dst, Tensor src) override;

 private:
  /// launch(handle, arguments...), one of gpu/cuda/launch.h.
  template <class Launch, class... Arguments>
  void run(Stream& stream, std::string_view name, Launch launch, Arguments... arguments) {
    const cudaStream_t handle = device_.handle(stream);
    device_.launched(stream, launch(handle, arguments...), name);
  }
  void multiply(Stream& stream, Storage storage, const Tensor& c, const Tensor& a, const Tensor& b,
                Into into);
  [[nodiscard]] void* workspace(Stream& stream, int64_t bytes = 0);
  /// For sums over the rows of x, [R, C].
  [[nodiscard]] void* sums_workspace(Stream& stream, const Tensor& x);

  CudaDevice& device_;
  Products products_;
  const int capability_;
};

}  // namespace tandem::gpu::cuda
