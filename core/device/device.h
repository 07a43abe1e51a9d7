#pragma once
// The device contract: streams of work in order, fences between them, host lanes for CPU work, memory.
// Implemented in gpu/.
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"
#include "core/device/memory.h"
#include "core/device/trace.h"

namespace tandem {

class Ops;

/// What a fence points to; each device has its own kind.
class FenceState {
 public:
  virtual ~FenceState() = default;
  [[nodiscard]] virtual bool passed() const noexcept = 0;
  virtual void wait() const = 0;
};

/// One recorded moment of a stream. A value: copying it copies the moment, never re-records it.
/// A default-constructed fence has passed.
class Fence {
 public:
  Fence() = default;
  explicit Fence(std::shared_ptr<const FenceState> state) : state_(std::move(state)) {}
  /// True once everything enqueued before the moment is done. Never blocks.
  [[nodiscard]] bool passed() const noexcept { return state_ == nullptr || state_->passed(); }
  /// Blocks the calling thread. Throws what the device failed with, if it failed before the moment.
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  [[nodiscard]] const std::shared_ptr<const FenceState>& state() const { return state_; }

 private:
  std::shared_ptr<const FenceState> state_;
};

/// A fence that nobody has recorded yet: a host-side promise, fulfilled once by whichever thread comes second
/// to a rendezvous.
class FencePromise {
 public:
  virtual ~FencePromise() = default;
  virtual void fulfil(Fence fence) = 0;
  /// Blocks the calling thread until the fence is recorded (not until it has passed). Throws what the device
  /// failed with.
  [[nodiscard]] virtual Fence recorded() = 0;
};

/// Milliseconds of a stream between two of its fences: kernels running, and idle by what the next kernel
/// waited for.
struct StreamTimes {
  double total_ms = 0, busy_ms = 0;
  double d2h_ms = 0, adam_ms = 0, h2d_ms = 0, other_ms = 0;
  int64_t from_ns = 0, to_ns = 0;  ///< when the two passed, of the steady clock
};

/// Work in order. Enqueuing never blocks on what is enqueued. After the device has failed, every call throws
/// that failure.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The moment after all that has been enqueued so far.
  [[nodiscard]] virtual Fence record() = 0;
  /// What is enqueued after this runs after the fence's moment.
  virtual void wait(const Fence& fence) = 0;
  /// dst and src: equal dtype and size. Host sides must be pinned (Device::pin), else the device refuses.
  virtual void copy(Tensor dst, Tensor src) = 0;
  virtual void fill_zero(Tensor dst) = 0;
  /// Names what the calling thread (or task) enqueues here, for traces and error messages, until its next
  /// call ("forward layer 3").
  virtual void range(std::string_view name) = 0;
  /// From and to: fences of this stream, both passed, from before to.
  [[nodiscard]] virtual StreamTimes times(const Fence& from, const Fence& to) const = 0;
};

/// A piece of CPU work: a name, everything that it reads and writes (checked by the vector clocks), and what
/// it does.
struct HostTask {
  std::string name;
  std::vector<Tensor> reads, writes;
  std::function<void()> body;
};

/// A Stream of CPU work (adam, cast, reduce, init, file read). Never wait on a Fence inside a task; a task
/// may enqueue work on streams and fulfil promises.
class HostLane : public Stream {
 public:
  virtual void run(HostTask task) = 0;
};

struct DeviceInfo {
  std::string name;  ///< "host", "cuda:0"
  std::string kind;  ///< "host", "cuda"
  size_t memory_bytes = 0;
  size_t free_bytes = 0;
  std::string pci_bus_id = {};  ///< "0000:01:00.0"; empty for what is no card
};

/// One number that lands in host memory: f64 [1], pinned, written by a copy.
struct Scalar {
  Tensor landed;
};

/// A pinned span of host memory; unpins on destruction.
class Pin {
 public:
  class Registration {
   public:
    virtual ~Registration() = default;
  };
  Pin() = default;
  explicit Pin(std::unique_ptr<Registration> registration) : registration_(std::move(registration)) {}

 private:
  std::unique_ptr<Registration> registration_;
};

/// Owns memory, streams and lanes. The first exception of any of them poisons the device: every waiter throws
/// it. Streams must be destroyed before their device; destroying a stream drains it.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;
  [[nodiscard]] virtual DeviceInfo info() const = 0;
  /// Device memory; its address means nothing to the CPU. Error(does_not_fit) above the limit. Contents
  /// undefined.
  [[nodiscard]] virtual Buffer allocate(size_t bytes, std::string_view scope) = 0;
  [[nodiscard]] virtual Pin pin(std::span<std::byte> host) = 0;
  [[nodiscard]] virtual std::unique_ptr<Stream> stream(std::string_view name, Purpose purpose,
                                                       int priority = 0) = 0;
  /// One lane for each name. They take turns on one thread, so at most one task of them runs at a time; which
  /// lane is next is decided when the thread is free: it stays with a lane until that has nothing more or
  /// must wait, then goes to the first one, in the order of the names, whose next piece of work may run. Only
  /// fences order the work of one lane against that of another.
  [[nodiscard]] virtual std::vector<std::unique_ptr<HostLane>> lanes(std::span<const std::string> names,
                                                                     Purpose purpose) = 0;
  /// A lane with a thread of its own.
  [[nodiscard]] std::unique_ptr<HostLane> lane(std::string name, Purpose purpose) {
    return std::move(lanes({&name, 1}, purpose).front());
  }
  [[nodiscard]] virtual std::shared_ptr<FencePromise> promise(std::string name) = 0;
  [[nodiscard]] virtual Ops& ops() = 0;
  /// A landed scalar. The caller is ordered after the copy that wrote it (a fence it waited on, or its lane
  /// did).
  [[nodiscard]] virtual double read(const Scalar& scalar) = 0;
  /// Tells the device that `stream` starts to use this scratch memory; contents are undefined (poisoned in
  /// chaos mode).
  virtual void scratch(Stream& stream, Tensor scratch) = 0;
  /// Poisons the device with a failure found by a host thread. The first one counts.
  virtual void fail(std::exception_ptr failure) noexcept = 0;
  /// Throws the failure, if there is one.
  virtual void check() const = 0;
  [[nodiscard]] virtual const MemoryCounters& counters() const = 0;

  // ---- traces; a device that keeps no times has nothing to say
  /// Names what the calling thread does, until its next call.
  virtual void range(std::string_view /*name*/) {}
  /// Keeps what streams, lanes and the calling thread do from now on. A piece of time that has begun before
  /// counts in full where it ends later.
  virtual void begin_trace() {}
  /// Ends that. What has not ended by now is left out. Also after a failure.
  [[nodiscard]] virtual Trace end_trace() { return {}; }
};

}  // namespace tandem
