#include "gpu/null/null_device.h"

#include <optional>

#include "gpu/host/host_ops.h"

namespace tandem::gpu {

namespace {

using Tier = ReservedMemory::Tier;

/// A fence of the null device: whatever was enqueued before it is done.
class Place final : public FenceState {
 public:
  Place(Recording& recording, RecordedPlace place) : recording(&recording), place(place) {}
  [[nodiscard]] bool passed() const noexcept override { return true; }
  void wait() const override { recording->hold(place); }
  Recording* const recording;
  const RecordedPlace place;
};

class NullPromise final : public FencePromise {
 public:
  NullPromise(Recording& recording, std::string name) : recording_(recording), name_(std::move(name)) {}
  void fulfil(Fence fence) override {
    ASSERT(!fence_, "promise \"{}\" is fulfilled twice", name_);
    fence_ = std::move(fence);
    task_ = recording_.task();
  }
  [[nodiscard]] Fence recorded() override {
    ASSERT(fence_.has_value(), "promise \"{}\" is waited for, and nothing is left that could fulfil it",
           name_);
    if (task_) recording_.hold(*task_);
    return *fence_;
  }

 private:
  Recording& recording_;
  const std::string name_;
  std::optional<RecordedPlace> task_;  ///< whose body fulfilled it
  std::optional<Fence> fence_;
};

size_t bytes_of(const std::vector<Tensor>& tensors) {
  size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

/// One stream's or lane's part of the recording. Base is Stream or HostLane.
template <class Base>
class NullQueue : public Base {
 public:
  NullQueue(const Device& device, Recording& recording, std::string_view name, Purpose purpose, bool lane)
      : device_(device),
        recording_(recording),
        name_(name),
        id_(recording.open(name, purpose, lane)),
        lane_(lane) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Fence record() override {
    device_.check();
    return Fence(std::make_shared<const Place>(recording_, recording_.here(id_)));
  }
  void wait(const Fence& fence) override {
    device_.check();
    if (fence.state() == nullptr) return;
    const auto* state = dynamic_cast<const Place*>(fence.state().get());
    ASSERT(state != nullptr && state->recording == &recording_, "{} waits for a fence of another device",
           name_);
    recording_.wait(id_, state->place);
  }
  void copy(Tensor dst, Tensor src) override {
    ASSERT(dst.dtype() == src.dtype() && dst.numel() == src.numel(), "copy on {}: {} x {} from {} x {}",
           name_, dst.numel(), name_of(dst.dtype()), src.numel(), name_of(src.dtype()));
    const auto letter = [&](Tensor side) {
      return !side.empty() && side_of(side) == Tier::device ? 'd' : 'h';
    };
    add(fmt::format("copy {}2{}", letter(src), letter(dst)), {src}, {dst}, 0);
  }
  void fill_zero(Tensor dst) override {
    if (!dst.empty()) (void)side_of(dst);
    add("fill_zero", {}, {dst}, 0);
  }
  void range(std::string_view name) override { range_ = name; }
  [[nodiscard]] StreamTimes times(const Fence&, const Fence&) const override { return {}; }

  void add(std::string name, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes,
           double flops) {
    device_.check();
    recording_.add({id_, std::move(name), range_, bytes_of(reads), bytes_of(writes), flops, {}, {}, {}});
  }
  [[nodiscard]] Recording& recording() const { return recording_; }

 protected:
  [[nodiscard]] RecordedPlace here() const { return recording_.here(id_); }
  /// Of a tensor that a copy or fill touches: device or pinned memory on a stream, the host's on a lane.
  [[nodiscard]] Tier side_of(Tensor tensor) const {
    const Tier tier = recording_.memory().tier_of(tensor, name_);
    ASSERT(lane_ ? tier == Tier::host : tier == Tier::device || recording_.memory().is_pinned(tensor),
           "{}: {} bytes of {} memory", name_, tensor.bytes(), lane_ ? "device" : "pageable");
    return tier;
  }

 private:
  const Device& device_;
  Recording& recording_;
  const std::string name_;
  const size_t id_;
  const bool lane_;
  std::string range_;
};

class NullStream final : public NullQueue<Stream> {
 public:
  NullStream(const Device& device, Recording& recording, std::string_view name, Purpose purpose)
      : NullQueue(device, recording, name, purpose, false) {}
};

class NullLane final : public NullQueue<HostLane> {
 public:
  NullLane(const Device& device, Recording& recording, std::string_view name, Purpose purpose)
      : NullQueue(device, recording, name, purpose, true) {}
  void run(HostTask task) override {
    ASSERT(task.body != nullptr, "task \"{}\" on {} has no body", task.name, name());
    for (const auto* tensors : {&task.reads, &task.writes})
      for (const Tensor& tensor : *tensors)
        if (!tensor.empty()) (void)side_of(tensor);
    add(std::move(task.name), task.reads, task.writes, 0);
    const auto outer = recording().set_task(here());
    task.body();
    recording().set_task(outer);
  }
};

}  // namespace

NullDevice::NullDevice(Recording& recording) : recording_(recording), ops_(make_untried_ops(*this)) {}

NullDevice::~NullDevice() = default;

DeviceInfo NullDevice::info() const { return {"null", "null", SIZE_MAX, SIZE_MAX}; }

Buffer NullDevice::allocate(size_t bytes, std::string_view scope) {
  return recording_.memory().reserve(Tier::device, bytes, scope, Touch::never);
}

Pin NullDevice::pin(std::span<std::byte> host) { return recording_.memory().pin(host); }

std::unique_ptr<Stream> NullDevice::stream(std::string_view name, Purpose purpose, int /*priority*/) {
  return std::make_unique<NullStream>(*this, recording_, name, purpose);
}

std::vector<std::unique_ptr<HostLane>> NullDevice::lanes(std::span<const std::string> names,
                                                         Purpose purpose) {
  std::vector<std::unique_ptr<HostLane>> lanes;
  for (const std::string& name : names)
    lanes.push_back(std::make_unique<NullLane>(*this, recording_, name, purpose));
  return lanes;
}

std::shared_ptr<FencePromise> NullDevice::promise(std::string name) {
  return std::make_shared<NullPromise>(recording_, std::move(name));
}

double NullDevice::read(const Scalar& scalar) {
  ASSERT(scalar.landed.dtype() == DType::f64 && scalar.landed.numel() == 1, "a scalar of {} x {}",
         scalar.landed.numel(), name_of(scalar.landed.dtype()));
  ASSERT(recording_.memory().is_pinned(scalar.landed), "a scalar is read that lies in no pinned memory");
  return 0;
}

void NullDevice::fail(std::exception_ptr failure) noexcept {
  if (!failure_) failure_ = std::move(failure);
}

void NullDevice::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

void NullDevice::enqueue(Stream& stream, Kernel kernel) {
  auto* own = dynamic_cast<NullStream*>(&stream);
  ASSERT(own != nullptr && &own->recording() == &recording_,
         "{} on \"{}\", which is no stream of this device", kernel.name, stream.name());
  for (const auto* tensors : {&kernel.reads, &kernel.writes})
    for (const Tensor& tensor : *tensors)
      ASSERT(recording_.memory().tier_of(tensor, kernel.name) == Tier::device, "{}: {} bytes of host memory",
             kernel.name, tensor.bytes());
  own->add(std::move(kernel.name), kernel.reads, kernel.writes, kernel.flops);
}

}  // namespace tandem::gpu
