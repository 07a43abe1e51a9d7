#pragma once
// The CUDA device with its ops, on the fake runtime, the emulator and the fake cuBLASLt. Attention has
// no CUDA kernels yet: here the host's stand in for them, as work of the same stream.
#include <memory>

#include "cpu_adam/plain_pool.h"
#include "gpu/cuda/cuda_ops.h"
#include "gpu/host/host_ops.h"
#include "tests/cuda/cuda_rig.h"
#include "tests/cuda/host_kernels.h"
#include "tests/cuda_fake/cublaslt.h"
#include "tests/cuda_fake/kernels.h"

namespace tandem::gpu::cuda {

class OpsWithStandIns final : public CudaOps {
 public:
  OpsWithStandIns(CudaDevice& device, const CublasLt& lt) : CudaOps(device, lt, compute_capability(0)) {
    host_kernels_.serve(device);
  }
  void attention_forward(Stream& stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                         const AttentionShape& s) override {
    host_->attention_forward(stream, out, lse, q, k, v, s);
  }
  void attention_backward(Stream& stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k,
                          Tensor v, Tensor out, Tensor lse, const AttentionShape& s) override {
    host_->attention_backward(stream, dq, dk, dv, dout, q, k, v, out, lse, s);
  }

 private:
  const std::unique_ptr<Workers> workers_ = make_plain_pool(1);
  HostKernels host_kernels_{*workers_};
  const std::unique_ptr<Ops> host_ = make_host_ops(host_kernels_);
};

inline CudaOpsFactory ops_with(const CublasLt& lt) {
  return [&lt](CudaDevice& device) { return std::make_unique<OpsWithStandIns>(device, lt); };
}

struct OpsRig : Rig {
  explicit OpsRig(uint64_t seed, const CublasLt& lt = cuda_fake::cublas_lt()) : Rig(seed, {}, ops_with(lt)) {
    cuda_fake::run_kernels_in_the_emulator(seed);
  }
};

}  // namespace tandem::gpu::cuda
