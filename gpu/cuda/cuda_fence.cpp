#include "gpu/cuda/cuda_fence.h"

namespace tandem::gpu::cuda {

Fence Follower::follow(const EventRef& event) {
  const std::lock_guard lock(mutex_);
  if (!lane_) lane_.emplace(core_->runtime, core_->unknown_memory, name_, std::make_shared<Runner>(purpose_));
  lane_->run({"reach a fence", {}, {}, [core = core_, event, name = name_] {
                core->enter();
                CUDA_CHECK(cudaEventSynchronize(event.get()), fmt::format("stream \"{}\"", name));
              }});
  return lane_->record();
}

bool CudaMoment::passed() const noexcept {
  if (has_passed_.load(std::memory_order_acquire)) return true;
  const cudaError_t status = cudaEventQuery(event.get());
  if (status != cudaSuccess) {
    (void)cudaGetLastError();  // "not ready" is an error to it; what else it is, the next call says
    return false;
  }
  has_passed_.store(true, std::memory_order_release);
  return true;
}

void CudaMoment::wait() const {
  ASSERT(!core->runtime->in_task(), "a task waits for a fence of a CUDA stream: a task must not");
  on_host().wait();
  core->runtime->check();
}

Fence CudaMoment::on_host() const {
  core->runtime->check();
  if (passed()) return {};
  const std::shared_ptr<Follower> live = follower.lock();
  if (live == nullptr) return {};
  const std::lock_guard lock(mutex_);
  if (followed_.state() == nullptr) followed_ = live->follow(event);
  return followed_;
}

}  // namespace tandem::gpu::cuda
