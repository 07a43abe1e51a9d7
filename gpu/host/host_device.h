#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "core/device/workers.h"
#include "gpu/host/kernel_queue.h"
#include "gpu/host/runtime.h"

namespace tandem::gpu {

class DeviceMemory;
class StreamCore;

/// How a host device is built. With chaos, order is checked and new or scratch memory is filled with NaN
/// patterns.
struct HostDeviceOptions {
  size_t memory_limit = 0;  ///< bytes; 0 = what the machine really has at the start
  std::optional<uint64_t> chaos_seed;
  bool check_order = false;
};

using OpsFactory = std::function<std::unique_ptr<Ops>(KernelQueue&)>;

/// The CPU as a device: streams are threads (or, in chaos, queues on the calling thread; then lanes that take
/// turns do so in any order), and device memory can't be touched at the addresses that tensors carry. What a
/// GPU would answer with silence is an error:
///
/// - OrderError (with check_order): an access that is not ordered after one that it conflicts with. A host
///   thread is ordered after what it waited for (Fence::wait, recorded()), never by having seen passed().
/// - InternalError: a kernel's tensor outside of a live buffer; a stream's copy from or to pageable memory;
///   device memory in a lane; a fence of another device, or waited for inside a task; a promise fulfilled
///   twice.
///
/// After a failure even a fence that had passed throws it. Buffers count as the bytes asked for and take
/// whole pages.
class HostDevice final : public Device, public KernelQueue {
 public:
  /// The workers must outlive the device. Without a factory there are no ops.
  HostDevice(Workers& workers, const HostDeviceOptions& options, const OpsFactory& make_ops);
  ~HostDevice() override;

  [[nodiscard]] DeviceInfo info() const override;
  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override;
  [[nodiscard]] Pin pin(std::span<std::byte> host) override;
  [[nodiscard]] std::unique_ptr<Stream> stream(std::string_view name, Purpose purpose, int priority) override;
  [[nodiscard]] std::vector<std::unique_ptr<HostLane>> lanes(std::span<const std::string> names,
                                                             Purpose purpose) override;
  [[nodiscard]] std::shared_ptr<FencePromise> promise(std::string name) override;
  [[nodiscard]] Ops& ops() override;
  [[nodiscard]] double read(const Scalar& scalar) override;
  void scratch(Stream& stream, Tensor scratch) override;
  void fail(std::exception_ptr failure) noexcept override;
  void check() const override;
  [[nodiscard]] const MemoryCounters& counters() const override;
  void range(std::string_view name) override;
  void begin_trace() override;
  [[nodiscard]] Trace end_trace() override;

  void enqueue(Stream& stream, Kernel kernel) override;

  /// For mutants: the wait with this number (Stream::wait calls on recorded fences, counted from 0 in the
  /// order of their calls) does nothing, neither to the clocks nor to the work; nor does a later one of the
  /// same stream on the same moment, which would stand in for it.
  void drop_wait(size_t index);
  /// From now on waits are listed.
  void trace_waits();
  [[nodiscard]] std::vector<WaitRecord> waits() const;

 private:
  [[nodiscard]] StreamCore& core_of(Stream& stream, std::string_view what) const;
  Workers& workers_;
  const bool chaos_, check_order_;
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<DeviceMemory> memory_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace tandem::gpu
