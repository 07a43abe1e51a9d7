#include "tests/offload/failure_device.h"

#include <algorithm>
#include <limits>

#include "gpu/host/host_ops.h"
#include "tests/offload/engine_rig.h"

namespace tandem::testing {

template <class Base>
class FailureDevice::Wrapped : public Base {
 public:
  Wrapped(FailureDevice& device, std::unique_ptr<Base> inner) : device_(device), inner_(std::move(inner)) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] Fence record() override { return inner_->record(); }
  void wait(const Fence& fence) override { inner_->wait(fence); }
  void copy(Tensor dst, Tensor src) override {
    const std::optional<Fault> fault = device_.strike(named("copy"));
    if (fault == Fault::at_enqueue) throw Planted();
    fault ? fail() : inner_->copy(dst, src);
  }
  void fill_zero(Tensor dst) override { inner_->fill_zero(dst); }
  void range(std::string_view name) override {
    {
      const std::lock_guard lock(device_.mutex_);
      range_ = name;
    }
    inner_->range(name);
  }
  [[nodiscard]] StreamTimes times(const Fence& from, const Fence& to) const override {
    return inner_->times(from, to);
  }
  [[nodiscard]] std::string named(const std::string& operation) const {
    const std::lock_guard lock(device_.mutex_);
    return fmt::format("{}/{}/{}", inner_->name(), range_, operation);
  }
  [[nodiscard]] Base& inner() { return *inner_; }

 protected:
  FailureDevice& device_;

 private:
  virtual void fail() = 0;
  std::unique_ptr<Base> inner_;
  std::string range_;
};

class FailureDevice::WrappedStream final : public Wrapped<Stream> {
 public:
  using Wrapped::Wrapped;

 private:
  void fail() override {
    device_.inner_.enqueue(inner(), {"planted", {}, {}, [](gpu::KernelContext&) { throw Planted(); }});
  }
};

class FailureDevice::WrappedLane final : public Wrapped<HostLane> {
 public:
  using Wrapped::Wrapped;
  void run(HostTask task) override {
    const std::optional<Fault> fault = device_.strike(named(task.name));
    if (fault == Fault::lost) return;
    if (fault == Fault::at_enqueue) throw Planted();
    if (fault) return fail();
    if (device_.watch_task)
      task.body = [this, name = task.name, body = std::move(task.body)] {
        device_.watch_task(name);
        body();
      };
    inner().run(std::move(task));
  }

 private:
  void fail() override {
    inner().run({"planted", {}, {}, [] { throw Planted(); }});
  }
};

FailureDevice::FailureDevice(Workers& workers, std::optional<uint64_t> chaos_seed, FaultPlan plan)
    : inner_(workers, {kDeviceMemory, chaos_seed, true},
             [this](gpu::KernelQueue&) { return gpu::make_host_ops(*this); }),
      plan_(std::move(plan)) {}

void FailureDevice::plant(FaultPlan plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

std::unique_ptr<Stream> FailureDevice::stream(std::string_view name, Purpose purpose, int priority) {
  auto stream = std::make_unique<WrappedStream>(*this, inner_.stream(name, purpose, priority));
  streams_.push_back(stream.get());
  return stream;
}

Fence FailureDevice::record(std::string_view stream) {
  const auto named = [&](const Stream* open) { return open->name() == stream; };
  return (*std::ranges::find_if(streams_, named))->record();
}

std::vector<std::unique_ptr<HostLane>> FailureDevice::lanes(std::span<const std::string> names,
                                                            Purpose purpose) {
  std::vector<std::unique_ptr<HostLane>> lanes = inner_.lanes(names, purpose);
  for (auto& lane : lanes) lane = std::make_unique<WrappedLane>(*this, std::move(lane));
  return lanes;
}

void FailureDevice::scratch(Stream& stream, Tensor scratch) {
  inner_.scratch(dynamic_cast<WrappedStream&>(stream).inner(), scratch);
}

void FailureDevice::enqueue(Stream& stream, gpu::Kernel kernel) {
  auto& wrapped = dynamic_cast<WrappedStream&>(stream);
  if (watch) watch(kernel);
  const std::optional<Fault> fault = strike(wrapped.named(kernel.name), &kernel);
  if (fault == Fault::at_enqueue) throw Planted();
  if (fault == Fault::in_operation) kernel.body = [](gpu::KernelContext&) { throw Planted(); };
  if (fault == Fault::infinity) {
    kernel.body = [body = std::move(kernel.body), out = kernel.writes.at(0)](gpu::KernelContext& context) {
      body(context);
      context.open(out).data<float>()[0] = std::numeric_limits<float>::infinity();
    };
  }
  inner_.enqueue(wrapped.inner(), std::move(kernel));
}

std::optional<Fault> FailureDevice::strike(const std::string& name, const gpu::Kernel* kernel) {
  const std::lock_guard lock(mutex_);
  if (struck_ || plan_.text.empty() || name.find(plan_.text) == std::string::npos) return std::nullopt;
  if (plan_.which && (kernel == nullptr || !plan_.which(*kernel))) return std::nullopt;
  if (plan_.after-- > 0) return std::nullopt;
  struck_ = true;
  return plan_.fault;
}

}  // namespace tandem::testing
