#include "gpu/cuda/cuda_lane.h"

namespace tandem::gpu::cuda {

namespace {

/// The runtime's fence in one of a lane of this device; the fence itself if it is none.
Fence moment_of(const Fence& fence) {
  const auto* moment = dynamic_cast<const LaneMoment*>(fence.state().get());
  return moment == nullptr ? fence : moment->moment;
}

}  // namespace

CudaLane::CudaLane(std::shared_ptr<CudaCore> core, const std::string& name, std::shared_ptr<Runner> runner)
    : core_(std::move(core)),
      purpose_(runner->meter.own()),
      word_(core_->flags->take()),
      lane_(std::make_unique<HostTaskLane>(core_->runtime, core_->unknown_memory, name, std::move(runner))) {}

CudaLane::~CudaLane() {
  lane_.reset();  // drains it
  core_->flags->give_back(word_);
}

Fence CudaLane::record() {
  const std::lock_guard lock(mutex_);
  core_->runtime->check();
  const uint32_t number = core_->flags->issue(word_);
  lane_->run(
      {"signal", {}, {}, [flags = core_->flags, word = word_, number] { flags->signal(word, number); }});
  return Fence(std::make_shared<LaneMoment>(core_, lane_->record(), word_, number, purpose_));
}

void CudaLane::wait(const Fence& fence) {
  if (const auto* moment = dynamic_cast<const CudaMoment*>(fence.state().get())) {
    ASSERT(moment->core == core_, "lane \"{}\" waits for a fence of another device", name());
    return lane_->wait(moment->on_host());
  }
  lane_->wait(moment_of(fence));
}

void CudaLane::require_host(Tensor tensor, std::string_view operation) {
  if (!tensor.empty())
    core_->memory.require_host(tensor, fmt::format("{} on lane \"{}\"", operation, name()));
}

void CudaLane::copy(Tensor dst, Tensor src) {
  require_host(dst, "copy");
  require_host(src, "copy");
  lane_->copy(dst, src);
}

void CudaLane::fill_zero(Tensor dst) {
  require_host(dst, "fill_zero");
  lane_->fill_zero(dst);
}

StreamTimes CudaLane::times(const Fence& from, const Fence& to) const {
  for (const Fence& fence : {from, to})
    if (fence.passed()) moment_of(fence).wait();  // the streams may have been told just before
  return lane_->times(moment_of(from), moment_of(to));
}

void CudaLane::run(HostTask task) {
  for (const std::vector<Tensor>* tensors : {&task.reads, &task.writes})
    for (const Tensor& tensor : *tensors) require_host(tensor, "task \"" + task.name + "\"");
  lane_->run(std::move(task));
}

}  // namespace tandem::gpu::cuda
