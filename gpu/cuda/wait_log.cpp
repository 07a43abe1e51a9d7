#include "gpu/cuda/wait_log.h"

#include "gpu/cuda/checks.h"

namespace tandem::gpu::cuda {

namespace {

constexpr size_t kKept = 65536;

bool has_passed(const EventRef& event) {
  const cudaError_t status = cudaEventQuery(event.get());
  if (status == cudaErrorNotReady) (void)cudaGetLastError();
  if (status == cudaErrorNotReady) return false;
  CUDA_CHECK(status, "");
  return true;
}

}  // namespace

void WaitLog::add(EventRef before, EventRef after, Purpose awaited) {
  waits_.push_back({std::move(before), std::move(after), awaited});
  measure();
  if (waits_.size() <= kKept) return;
  waits_.pop_front();
  measured_ = std::max(measured_, ++base_);
}

void WaitLog::measure() {
  for (; measured_ < count(); ++measured_) {
    Wait& wait = waits_[measured_ - base_];
    if (!has_passed(wait.after)) return;
    wait.ms = elapsed_ms(wait.before, wait.after);
    wait.before = wait.after = nullptr;
  }
}

std::array<double, 5> WaitLog::idle_ms(uint64_t begin, uint64_t end) {
  measure();
  ASSERT(begin >= base_ && end <= measured_, "waits {} to {} are not known: {} to {} are", begin, end, base_,
         measured_);
  std::array<double, 5> idle{};
  for (uint64_t i = begin; i < end; ++i) {
    const Wait& wait = waits_[i - base_];
    idle[static_cast<size_t>(wait.awaited)] += wait.ms;
  }
  return idle;
}

}  // namespace tandem::gpu::cuda
