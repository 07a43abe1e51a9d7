#pragma once
// A host device with one planted failure.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/host/host_device.h"

namespace tandem::testing {

struct Planted : std::runtime_error {
  Planted() : std::runtime_error("planted") {}
};

/// What happens at one operation.
enum class Fault : uint8_t {
  in_operation,  ///< the operation throws when it runs, on whichever thread that is
  at_enqueue,    ///< enqueuing it throws, on the thread that enqueues
  lost,          ///< it never runs (tasks only)
  infinity,      ///< the kernel's first output gets an infinity in front (fp32)
};

/// Operations are named 'STREAM/RANGE/WHAT', WHAT being a kernel's name, "copy" or a task's name.
struct FaultPlan {
  Fault fault = Fault::in_operation;
  std::string text;  ///< of the operation's name; the fault happens at one that contains it,
  int after = 0;     ///< when so many others have gone by
  std::function<bool(const gpu::Kernel&)> which;  ///< kernels only: none = any
};

/// All streams and lanes are wrapped, so that every operation goes by plan() on its way in.
class FailureDevice final : public Device, public gpu::KernelQueue {
 public:
  FailureDevice(Workers& workers, std::optional<uint64_t> chaos_seed, FaultPlan plan);
  /// Another plan from now on, unless the first one has struck.
  void plant(FaultPlan plan);
  [[nodiscard]] bool struck() const { return struck_; }
  /// Sees every kernel, before it is enqueued.
  std::function<void(const gpu::Kernel&)> watch;
  /// Runs before every task of a lane, where that runs.
  std::function<void(const std::string& task)> watch_task;
  /// A moment after all that has been enqueued on the stream of that name.
  [[nodiscard]] Fence record(std::string_view stream);

  /// Where it says that it is, as a card would.
  std::string pci_bus_id;
  [[nodiscard]] DeviceInfo info() const override {
    DeviceInfo info = inner_.info();
    info.pci_bus_id = pci_bus_id;
    return info;
  }
  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override {
    return inner_.allocate(bytes, scope);
  }
  [[nodiscard]] Pin pin(std::span<std::byte> host) override { return inner_.pin(host); }
  [[nodiscard]] std::unique_ptr<Stream> stream(std::string_view name, Purpose purpose, int priority) override;
  [[nodiscard]] std::vector<std::unique_ptr<HostLane>> lanes(std::span<const std::string> names,
                                                             Purpose purpose) override;
  [[nodiscard]] std::shared_ptr<FencePromise> promise(std::string name) override {
    return inner_.promise(std::move(name));
  }
  [[nodiscard]] Ops& ops() override { return inner_.ops(); }
  [[nodiscard]] double read(const Scalar& scalar) override { return inner_.read(scalar); }
  void scratch(Stream& stream, Tensor scratch) override;
  void fail(std::exception_ptr failure) noexcept override { inner_.fail(std::move(failure)); }
  void check() const override { inner_.check(); }
  [[nodiscard]] const MemoryCounters& counters() const override { return inner_.counters(); }
  void enqueue(Stream& stream, gpu::Kernel kernel) override;

 private:
  template <class Base>
  class Wrapped;
  class WrappedStream;
  class WrappedLane;
  /// The fault that happens at this operation, if one does.
  [[nodiscard]] std::optional<Fault> strike(const std::string& name, const gpu::Kernel* kernel = nullptr);
  gpu::HostDevice inner_;
  std::mutex mutex_;
  FaultPlan plan_;
  std::atomic<bool> struck_ = false;
  std::vector<Stream*> streams_;
};

}  // namespace tandem::testing
