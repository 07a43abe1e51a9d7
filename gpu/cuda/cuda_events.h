#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

namespace tandem::gpu::cuda {

/// An event of the pool; goes back there with its last copy.
using EventRef = std::shared_ptr<CUevent_st>;

/// Events that keep their time and that threads sleep on. One is recorded once between taking it and giving
/// it back, so that nobody waits for another moment than the one that was meant. Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool() = default;
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  /// CudaError if there is none and none can be made.
  [[nodiscard]] EventRef take();
  /// The same, recorded on the stream.
  [[nodiscard]] EventRef record(cudaStream_t stream);

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

/// Milliseconds between two events that have passed.
double elapsed_ms(const EventRef& from, const EventRef& to);

}  // namespace tandem::gpu::cuda
