#pragma once
#include "core/device/workers.h"
#include "gpu/cuda/cuda_device.h"
#include "gpu/host/kernel_queue.h"

namespace tandem::gpu::cuda {

/// The host device's kernels as work of the fake runtime's streams: make_host_ops on this queue has every
/// verb, and gives bit for bit what the host device gives.
class HostKernels final : public KernelQueue {
 public:
  /// The workers must outlive the device.
  explicit HostKernels(Workers& workers) : workers_(workers) {}
  /// The device whose ops these are; before the first launch.
  void serve(CudaDevice& device) { device_ = &device; }
  void enqueue(Stream& stream, Kernel kernel) override;

 private:
  Workers& workers_;
  CudaDevice* device_ = nullptr;
};

}  // namespace tandem::gpu::cuda
