#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gpu/cuda/cuda_core.h"
#include "gpu/host/host_stream.h"

namespace tandem::gpu::cuda {

/// How threads wait for a CUDA stream: a lane of the runtime that follows the stream's events, with a thread
/// of its own from the first wait on. So a failure wakes every waiter, and who waits for a stream that hangs
/// does not hang with it. Thread-safe.
class Follower {
 public:
  Follower(std::shared_ptr<CudaCore> core, std::string name, Purpose purpose)
      : core_(std::move(core)), name_(std::move(name)), purpose_(purpose) {}
  /// A fence of the runtime that passes once the event has.
  [[nodiscard]] Fence follow(const EventRef& event);

 private:
  const std::shared_ptr<CudaCore> core_;
  const std::string name_;
  const Purpose purpose_;
  std::mutex mutex_;
  std::optional<HostTaskLane> lane_;
};

/// A moment of a CUDA stream.
class CudaMoment final : public FenceState {
 public:
  CudaMoment(std::shared_ptr<CudaCore> core, std::weak_ptr<Follower> follower, EventRef event,
             const void* stream, Purpose purpose, uint64_t number, uint64_t waits)
      : core(std::move(core)),
        follower(std::move(follower)),
        event(std::move(event)),
        stream(stream),
        purpose(purpose),
        number(number),
        waits(waits) {}
  [[nodiscard]] bool passed() const noexcept override;
  void wait() const override;
  /// The same moment as a fence of the runtime. Default if it has passed.
  [[nodiscard]] Fence on_host() const;

  const std::shared_ptr<CudaCore> core;
  const std::weak_ptr<Follower> follower;  ///< ends with its stream, which is drained by then
  const EventRef event;
  const void* const stream;  ///< who recorded it
  const Purpose purpose;
  const uint64_t number;  ///< of the stream's fences
  const uint64_t waits;   ///< of the stream before it, see WaitLog

 private:
  mutable std::atomic<bool> has_passed_ = false;
  mutable std::mutex mutex_;
  mutable Fence followed_;
};

/// A moment of a lane: the runtime's, and its number in the lane's word. It has passed for everybody as soon
/// as it has for the streams.
class LaneMoment final : public FenceState {
 public:
  LaneMoment(std::shared_ptr<CudaCore> core, Fence moment, size_t word, uint32_t number, Purpose purpose)
      : core(std::move(core)), moment(std::move(moment)), word(word), number(number), purpose(purpose) {}
  [[nodiscard]] bool passed() const noexcept override {
    return moment.passed() || core->flags->signalled(word, number);
  }
  void wait() const override { moment.wait(); }

  const std::shared_ptr<CudaCore> core;
  const Fence moment;
  const size_t word;
  const uint32_t number;
  const Purpose purpose;
};

}  // namespace tandem::gpu::cuda
