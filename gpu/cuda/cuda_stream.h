#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "gpu/cuda/cuda_fence.h"
#include "gpu/cuda/wait_log.h"

namespace tandem::gpu::cuda {

/// A CUDA stream of the device. Calls of different threads are taken one after the other.
///
/// times() is approximate in two ways. A piece of time counts as idle only where the stream stood in a wait;
/// where nothing was enqueued (a slow host) or the card was busy with other streams, it counts as busy. And
/// waiting counts in full as what the awaited stream or lane is for, whatever that was waiting for itself.
class CudaStream final : public Stream {
 public:
  /// A greater priority is more urgent; what the card doesn't have is the nearest that it has.
  CudaStream(std::shared_ptr<CudaCore> core, std::string_view name, Purpose purpose, int priority);
  ~CudaStream() override;
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Fence record() override;
  void wait(const Fence& fence) override;
  void copy(Tensor dst, Tensor src) override;
  void fill_zero(Tensor dst) override;
  void range(std::string_view name) override;
  [[nodiscard]] StreamTimes times(const Fence& from, const Fence& to) const override;

  [[nodiscard]] const CudaCore& core() const { return *core_; }
  [[nodiscard]] cudaStream_t handle() const { return stream_; }
  /// 'copy on stream "d2h" (range "backward layer 3")', for messages.
  [[nodiscard]] std::string describe(std::string_view operation) const;
  /// Memory for what is enqueued here, at least so large. Grows by draining the stream; what was there before
  /// is gone then.
  [[nodiscard]] void* workspace(size_t bytes);

 private:
  [[nodiscard]] std::string describe_here(std::string_view operation) const;
  void wait_for(const CudaMoment& moment);
  void wait_for(const LaneMoment& moment);
  /// Enqueues a wait between two events.
  template <class Act>
  void timed_wait(Purpose awaited, const Act& act);
  [[nodiscard]] const CudaMoment& own(const Fence& fence) const;

  const std::shared_ptr<CudaCore> core_;
  const std::string name_;
  const Purpose purpose_;
  const std::shared_ptr<Follower> follower_;
  cudaStream_t stream_ = nullptr;
  mutable std::mutex mutex_;
  std::string range_;
  uint64_t fences_ = 0;
  Buffer workspace_;
  mutable WaitLog waits_;
  /// A moment of which both clocks are known: an event, and the steady clock's nanoseconds.
  mutable EventRef known_event_;
  mutable int64_t known_ns_ = 0;
};

/// Device memory as a buffer of that scope.
[[nodiscard]] Buffer allocate(const std::shared_ptr<CudaCore>& core, size_t bytes, std::string_view scope);

}  // namespace tandem::gpu::cuda
