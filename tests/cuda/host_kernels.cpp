#include "tests/cuda/host_kernels.h"

#include "tests/cuda_fake/host_work.h"

namespace tandem::gpu::cuda {

namespace {

class OpenKernel final : public KernelContext {
 public:
  OpenKernel(Workers& workers, const cuda_fake::Open& open) : workers_(workers), open_(open) {}
  [[nodiscard]] Workers& workers() override { return workers_; }
  [[nodiscard]] Tensor open(Tensor device) const override { return open_(device); }

 private:
  Workers& workers_;
  const cuda_fake::Open& open_;
};

}  // namespace

void HostKernels::enqueue(Stream& stream, Kernel kernel) {
  const cudaStream_t on = device_->handle(stream);
  const auto body = [&workers = workers_, body = std::move(kernel.body)](const cuda_fake::Open& open) {
    OpenKernel context(workers, open);
    body(context);
  };
  device_->launched(stream, cuda_fake::launch_host_work(on, kernel.name, kernel.reads, kernel.writes, body),
                    kernel.name);
}

}  // namespace tandem::gpu::cuda
