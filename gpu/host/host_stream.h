#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "gpu/host/device_memory.h"
#include "gpu/host/runtime.h"

namespace tandem::gpu {

/// A queue and what may be put into it: all that streams and lanes have in common.
class StreamCore {
 public:
  StreamCore(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory, std::string_view name,
             bool lane, std::shared_ptr<Runner> runner);
  ~StreamCore();
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;

  [[nodiscard]] Runtime& runtime() const { return *runtime_; }
  [[nodiscard]] DeviceMemory& memory() const { return *memory_; }
  [[nodiscard]] WorkQueue& queue() { return queue_; }
  [[nodiscard]] const WorkQueue& queue() const { return queue_; }
  /// A stream's copies touch device and pinned memory, a lane's any host memory.
  void copy(Tensor dst, Tensor src);
  void fill(std::string_view name, Tensor dst, uint8_t byte);
  [[nodiscard]] Operand operand(Tensor tensor, std::string_view what) const;

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<DeviceMemory> memory_;
  WorkQueue queue_;
};

/// The Stream interface on a core; Base is Stream or HostLane.
template <class Base>
class CoreStream : public Base {
 public:
  CoreStream(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory, std::string_view name,
             bool lane, std::shared_ptr<Runner> runner)
      : core_(std::move(runtime), std::move(memory), name, lane, std::move(runner)) {}
  [[nodiscard]] std::string_view name() const override { return core_.queue().name; }
  [[nodiscard]] Fence record() override { return core_.runtime().record(core_.queue()); }
  void wait(const Fence& fence) override { core_.runtime().wait(core_.queue(), fence); }
  void copy(Tensor dst, Tensor src) override { core_.copy(dst, src); }
  void fill_zero(Tensor dst) override { core_.fill("fill_zero", dst, 0); }
  void range(std::string_view name) override { core_.runtime().range(core_.queue(), name); }
  [[nodiscard]] StreamTimes times(const Fence& from, const Fence& to) const override {
    return core_.runtime().times(core_.queue(), from, to);
  }
  [[nodiscard]] StreamCore& core() { return core_; }

 private:
  StreamCore core_;
};

/// Device work.
class HostStream final : public CoreStream<Stream> {
 public:
  HostStream(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory, std::string_view name,
             Purpose purpose)
      : CoreStream(std::move(runtime), std::move(memory), name, false, std::make_shared<Runner>(purpose)) {}
};

/// CPU work on host memory.
class HostTaskLane final : public CoreStream<HostLane> {
 public:
  HostTaskLane(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory, std::string_view name,
               std::shared_ptr<Runner> runner)
      : CoreStream(std::move(runtime), std::move(memory), name, true, std::move(runner)) {}
  void run(HostTask task) override;
};

}  // namespace tandem::gpu
