#include "gpu/cuda/cuda_events.h"

#include "gpu/cuda/checks.h"

namespace tandem::gpu::cuda {

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) CUDA_LOG(cudaEventDestroy(event));
}

EventRef EventPool::take() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "");
  return {event, [pool = shared_from_this()](cudaEvent_t used) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_.push_back(used);
          }};
}

EventRef EventPool::record(cudaStream_t stream) {
  EventRef event = take();
  CUDA_CHECK(cudaEventRecord(event.get(), stream), "");
  return event;
}

double elapsed_ms(const EventRef& from, const EventRef& to) {
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, from.get(), to.get()), "");
  return static_cast<double>(ms);
}

}  // namespace tandem::gpu::cuda
