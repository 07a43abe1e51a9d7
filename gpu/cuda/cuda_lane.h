#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "gpu/cuda/cuda_fence.h"

namespace tandem::gpu::cuda {

/// A lane of the runtime that CUDA streams can wait for: before each of its fences passes it says so in a
/// word that the card sees.
class CudaLane final : public HostLane {
 public:
  CudaLane(std::shared_ptr<CudaCore> core, const std::string& name, std::shared_ptr<Runner> runner);
  ~CudaLane() override;
  [[nodiscard]] std::string_view name() const override { return lane_->name(); }
  [[nodiscard]] Fence record() override;
  void wait(const Fence& fence) override;
  void copy(Tensor dst, Tensor src) override;
  void fill_zero(Tensor dst) override;
  void range(std::string_view name) override { lane_->range(name); }
  [[nodiscard]] StreamTimes times(const Fence& from, const Fence& to) const override;
  void run(HostTask task) override;

 private:
  void require_host(Tensor tensor, std::string_view operation);
  const std::shared_ptr<CudaCore> core_;
  const Purpose purpose_;
  const size_t word_;
  std::mutex mutex_;  ///< numbers are issued in the order of the queue
  std::unique_ptr<HostTaskLane> lane_;
};

}  // namespace tandem::gpu::cuda
