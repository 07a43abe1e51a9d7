#pragma once
// The CUDA device with its ops, on the fake runtime, the emulator and the fake cuBLASLt. Attention and the
// loss have no CUDA kernels yet: here the host's stand in for them, as work of the same stream.
#include <exception>
#include <memory>
#include <vector>

#include "cpu_adam/plain_pool.h"
#include "gpu/cuda/cuda_ops.h"
#include "gpu/host/kernels/attention.h"
#include "gpu/host/kernels/loss.h"
#include "gpu/ops_checks.h"
#include "tests/cuda/cuda_rig.h"
#include "tests/cuda_fake/cublaslt.h"
#include "tests/cuda_fake/kernels.h"
#include "tests/cuda_fake/state.h"

namespace tandem::gpu::cuda {

class OpsWithStandIns final : public CudaOps {
 public:
  OpsWithStandIns(CudaDevice& device, const CublasLt& lt) : CudaOps(device, lt, 80), device_(device) {}

  void attention_forward(Stream& stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                         const AttentionShape& s) override {
    checks::attention_forward(out, lse, q, k, v, s);
    enqueue(stream, {out, lse, q, k, v},
            [=, this] { gpu::attention_forward(*workers_, tools(), out, lse, q, k, v, s); });
  }
  void attention_backward(Stream& stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k,
                          Tensor v, Tensor out, Tensor lse, const AttentionShape& s) override {
    checks::attention_backward(dq, dk, dv, dout, q, k, v, out, lse, s);
    enqueue(stream, {dq, dk, dv, dout, q, k, v, out, lse}, [=, this] {
      gpu::attention_backward(*workers_, tools(), dq, dk, dv, dout, q, k, v, out, lse, s);
    });
  }
  void softmax_cross_entropy(Stream& stream, Tensor loss, Tensor dlogits, Tensor logits, Tensor targets,
                             float scale) override {
    checks::softmax_cross_entropy(loss, dlogits, logits, targets);
    enqueue(stream, {loss, dlogits, logits, targets}, [=, this] {
      gpu::softmax_cross_entropy(*workers_, tools(), loss, dlogits, logits, targets, scale);
    });
  }

 private:
  [[nodiscard]] KernelTools tools() { return {*row_kernels().front(), scratch_}; }

  template <class Body>
  void enqueue(Stream& stream, const std::vector<Tensor>& tensors, Body body) {
    const cudaStream_t handle = device_.handle(stream);
    const cuda_fake::Lock lock(cuda_fake::state().mutex);
    cuda_fake::Operation work{.text = "a stand-in", .is_work = true};
    for (const Tensor& t : tensors) {
      if (t.empty()) continue;
      ASSERT(cuda_fake::place_of(t.raw(), t.bytes(), work.text).kind == cuda_fake::Place::Kind::device,
             "not device memory");
      work.uses.push_back({static_cast<const std::byte*>(t.raw()), t.bytes()});
    }
    work.run = [body] {
      const cuda_fake::OpenMemory open;
      body();
    };
    ASSERT(cuda_fake::enqueue(handle, std::move(work)) == cudaSuccess, "not enqueued");
  }

  CudaDevice& device_;
  const std::unique_ptr<Workers> workers_ = make_plain_pool(1);
  Scratch scratch_;
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
