#include "gpu/host/host_device.h"

#include <cstring>

#include "core/device/host_limits.h"
#include "gpu/host/device_memory.h"
#include "gpu/host/host_stream.h"

namespace tandem::gpu {

namespace {

constexpr uint8_t kPoison = 0xFF;  // a NaN in every float type
constexpr size_t kMappings = 2;    // of each byte of device memory

class DeviceAllocation final : public Buffer::Allocation {
 public:
  DeviceAllocation(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory, size_t bytes,
                   std::string_view scope)
      : runtime_(std::move(runtime)),
        memory_(std::move(memory)),
        scope_(scope),
        mapping_(memory_->allocate(bytes, scope)) {
    data = mapping_->face();
    this->bytes = bytes;
  }
  ~DeviceAllocation() override {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    runtime_->release("the end of a buffer of \"" + scope_ + "\"", begin, begin + bytes);
    memory_->free(*mapping_, scope_);
  }
  void poison() { std::memset(mapping_->body(), kPoison, bytes); }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<DeviceMemory> memory_;
  std::string scope_;
  std::shared_ptr<const Mapping> mapping_;
};

class HostPin final : public Pin::Registration {
 public:
  HostPin(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory, std::span<std::byte> host)
      : runtime_(std::move(runtime)), memory_(std::move(memory)), host_(host) {
    memory_->pin(host_);
  }
  ~HostPin() override {
    const auto begin = reinterpret_cast<uintptr_t>(host_.data());
    runtime_->release("the end of a pin", begin, begin + host_.size());
    memory_->unpin(host_);
  }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<DeviceMemory> memory_;
  std::span<std::byte> host_;
};

/// Opens what its kernel declared and nothing else.
class OpenKernel final : public KernelContext {
 public:
  OpenKernel(Workers& workers, std::string text) : workers_(workers), text_(std::move(text)) {}
  void declare(Operand operand) { operands_.push_back(std::move(operand)); }
  [[nodiscard]] Workers& workers() override { return workers_; }
  [[nodiscard]] Tensor open(Tensor device) const override {
    if (device.empty()) return device;
    for (const Operand& operand : operands_) {
      const std::byte* begin = operand.tensor.bytes_at(0);
      if (device.bytes_at(0) < begin || device.bytes_at(device.bytes()) > begin + operand.tensor.bytes())
        continue;
      return {operand.bytes + (device.bytes_at(0) - begin), device.dtype(), device.shape()};
    }
    throw InternalError(__FILE__, __LINE__, text_ + " opens a tensor that it did not declare");
  }

 private:
  Workers& workers_;
  std::string text_;
  std::vector<Operand> operands_;
};

std::shared_ptr<Runtime> make_runtime(const HostDeviceOptions& options) {
  return options.chaos_seed ? make_chaos_runtime(*options.chaos_seed)
                            : make_threaded_runtime(options.check_order);
}

size_t memory_limit(const HostDeviceOptions& options) {
  return options.memory_limit != 0 ? options.memory_limit : probe_host_limits().usable_bytes(kMappings);
}

}  // namespace

HostDevice::HostDevice(Workers& workers, const HostDeviceOptions& options, const OpsFactory& make_ops)
    : workers_(workers),
      chaos_(options.chaos_seed.has_value()),
      check_order_(chaos_ || options.check_order),
      runtime_(make_runtime(options)),
      memory_(std::make_shared<DeviceMemory>(memory_limit(options))),
      ops_(make_ops ? make_ops(*this) : nullptr) {}

HostDevice::~HostDevice() = default;

DeviceInfo HostDevice::info() const {
  return {"host", "host", memory_->limit(), memory_->limit() - memory_->counters().total().now};
}

Buffer HostDevice::allocate(size_t bytes, std::string_view scope) {
  if (bytes == 0) return {};
  auto allocation = std::make_unique<DeviceAllocation>(runtime_, memory_, bytes, scope);
  if (chaos_) allocation->poison();
  return Buffer(std::move(allocation));
}

Pin HostDevice::pin(std::span<std::byte> host) {
  return Pin(std::make_unique<HostPin>(runtime_, memory_, host));
}

std::unique_ptr<Stream> HostDevice::stream(std::string_view name, Purpose purpose, int /*priority*/) {
  return std::make_unique<HostStream>(runtime_, memory_, name, purpose);
}

std::vector<std::unique_ptr<HostLane>> HostDevice::lanes(std::span<const std::string> names,
                                                         Purpose purpose) {
  const auto runner = std::make_shared<Runner>(purpose);
  std::vector<std::unique_ptr<HostLane>> lanes;
  for (const std::string& name : names)
    lanes.push_back(std::make_unique<HostTaskLane>(runtime_, memory_, name, runner));
  return lanes;
}

std::shared_ptr<FencePromise> HostDevice::promise(std::string name) {
  return make_promise(runtime_, std::move(name));
}

Ops& HostDevice::ops() {
  ASSERT(ops_ != nullptr, "this host device was built without ops");
  return *ops_;
}

double HostDevice::read(const Scalar& scalar) {
  const Tensor landed = scalar.landed;  // [1] f64
  ASSERT(landed.dtype() == DType::f64 && landed.numel() == 1, "a scalar of {} x {}", landed.numel(),
         name_of(landed.dtype()));
  const Operand operand = memory_->on_host(landed, "read of a scalar");
  runtime_->touch("read of a scalar", read_of(landed));
  double value = 0;
  std::memcpy(&value, operand.bytes, sizeof value);
  return value;
}

void HostDevice::scratch(Stream& stream, Tensor scratch) {
  if (!check_order_) return;
  StreamCore& core = core_of(stream, "scratch");
  if (chaos_) return core.fill("scratch", scratch, kPoison);
  (void)memory_->on_device(scratch, runtime_->describe(core.queue(), "scratch"));
  runtime_->enqueue(core.queue(), {{"", "scratch"}, {write_of(scratch)}, nullptr});
}

void HostDevice::fail(std::exception_ptr failure) noexcept { runtime_->fail(std::move(failure)); }

void HostDevice::check() const { runtime_->check(); }

const MemoryCounters& HostDevice::counters() const { return memory_->counters(); }

void HostDevice::range(std::string_view name) { runtime_->range(name); }

void HostDevice::begin_trace() { runtime_->begin_trace(); }

Trace HostDevice::end_trace() { return runtime_->end_trace(); }

void HostDevice::enqueue(Stream& stream, Kernel kernel) {
  Work work{{"kernel", std::move(kernel.name)}, {}, nullptr};
  StreamCore& core = core_of(stream, work.label.text());
  const std::string what = runtime_->describe(core.queue(), work.label.text());
  OpenKernel context(workers_, what);
  for (const Tensor& tensor : kernel.reads) {
    context.declare(memory_->on_device(tensor, what));
    work.accesses.push_back(read_of(tensor));
  }
  for (const Tensor& tensor : kernel.writes) {
    context.declare(memory_->on_device(tensor, what));
    work.accesses.push_back(write_of(tensor));
  }
  work.body = [context = std::move(context), body = std::move(kernel.body)]() mutable { body(context); };
  runtime_->enqueue(core.queue(), std::move(work));
}

StreamCore& HostDevice::core_of(Stream& stream, std::string_view what) const {
  auto* own = dynamic_cast<HostStream*>(&stream);
  ASSERT(own != nullptr && &own->core().runtime() == runtime_.get(),
         "{} on \"{}\", which is no stream of this device", what, stream.name());
  return own->core();
}

void HostDevice::drop_wait(size_t index) { runtime_->drop_wait(index); }

void HostDevice::trace_waits() { runtime_->trace_waits(); }

std::vector<WaitRecord> HostDevice::waits() const { return runtime_->waits(); }

}  // namespace tandem::gpu
