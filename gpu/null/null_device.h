#pragma once
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "gpu/host/kernel_queue.h"
#include "gpu/null/recording.h"

namespace tandem::gpu {

/// Runs a step without its arithmetic, on the calling thread: every operation is recorded as it is enqueued
/// and is done with that. Kernels, copies and fills do nothing; the body of a lane's task runs at once, for
/// it may enqueue and publish. Memory is ReservedMemory.
///
/// The scenario: every scalar that lands reads 0, so losses and norms are 0 and all gradients are finite.
///
/// As on the host device it is an InternalError when shapes don't meet, memory is of the wrong kind or gone,
/// or a fence is another device's; and when a promise is waited for that nobody has fulfilled, since nobody
/// could any more.
class NullDevice final : public Device, public KernelQueue {
 public:
  /// The recording must outlive the device.
  explicit NullDevice(Recording& recording);
  ~NullDevice() override;

  [[nodiscard]] DeviceInfo info() const override;
  /// Without a limit.
  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override;
  [[nodiscard]] Pin pin(std::span<std::byte> host) override;
  [[nodiscard]] std::unique_ptr<Stream> stream(std::string_view name, Purpose purpose, int priority) override;
  [[nodiscard]] std::vector<std::unique_ptr<HostLane>> lanes(std::span<const std::string> names,
                                                             Purpose purpose) override;
  [[nodiscard]] std::shared_ptr<FencePromise> promise(std::string name) override;
  [[nodiscard]] Ops& ops() override { return *ops_; }
  [[nodiscard]] double read(const Scalar& scalar) override;
  void scratch(Stream&, Tensor) override {}
  void fail(std::exception_ptr failure) noexcept override;
  void check() const override;
  [[nodiscard]] const MemoryCounters& counters() const override { return recording_.memory().device(); }

  void enqueue(Stream& stream, Kernel kernel) override;

 private:
  Recording& recording_;
  std::exception_ptr failure_;
  const std::unique_ptr<Ops> ops_;
};

}  // namespace tandem::gpu
