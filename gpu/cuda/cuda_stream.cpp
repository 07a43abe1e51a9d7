#include "gpu/cuda/cuda_stream.h"

#include <algorithm>
#include <cmath>

namespace tandem::gpu::cuda {

namespace {

class CudaAllocation final : public Buffer::Allocation {
 public:
  CudaAllocation(std::shared_ptr<CudaCore> core, size_t bytes, std::string_view scope)
      : core_(std::move(core)), scope_(scope) {
    data = core_->call([&] { return core_->memory.allocate(bytes, scope); });
    this->bytes = bytes;
  }
  ~CudaAllocation() override { core_->memory.free(data, bytes, scope_); }

 private:
  std::shared_ptr<CudaCore> core_;
  std::string scope_;
};

/// CUDA counts priorities downwards: the most urgent is the least number.
cudaStream_t create(int priority) {
  int least = 0, most = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &most), "");
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, std::clamp(-priority, most, least)),
             "");
  return stream;
}

bool overlap(Tensor a, Tensor b) {
  return a.bytes_at(0) < b.bytes_at(b.bytes()) && b.bytes_at(0) < a.bytes_at(a.bytes());
}

cudaMemcpyKind direction(CudaMemory::Kind to, CudaMemory::Kind from) {
  using Kind = CudaMemory::Kind;
  if (to == Kind::device) return from == Kind::device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from == Kind::device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

}  // namespace

Buffer allocate(const std::shared_ptr<CudaCore>& core, size_t bytes, std::string_view scope) {
  if (bytes == 0) return {};
  return Buffer(std::make_unique<CudaAllocation>(core, bytes, scope));
}

CudaStream::CudaStream(std::shared_ptr<CudaCore> core, std::string_view name, Purpose purpose, int priority)
    : core_(std::move(core)),
      name_(name),
      purpose_(purpose),
      follower_(std::make_shared<Follower>(core_, name_, purpose)) {
  core_->call([&] {
    stream_ = create(priority);
    known_event_ = core_->events->record(stream_);
    CUDA_CHECK(cudaEventSynchronize(known_event_.get()), describe_here("opening"));
    known_ns_ = steady_now();
  });
}

CudaStream::~CudaStream() {
  CUDA_LOG(cudaSetDevice(core_->card));
  if (const cudaError_t status = cudaStreamSynchronize(stream_); status != cudaSuccess)
    core_->runtime->fail(
        std::make_exception_ptr(CudaError(status, "cudaStreamSynchronize", describe_here("end"))));
  CUDA_LOG(cudaStreamDestroy(stream_));
}

std::string CudaStream::describe(std::string_view operation) const {
  const std::lock_guard lock(mutex_);
  return describe_here(operation);
}

std::string CudaStream::describe_here(std::string_view operation) const {
  return fmt::format("{} on stream \"{}\" (range \"{}\")", operation, name_, range_);
}

Fence CudaStream::record() {
  const std::lock_guard lock(mutex_);
  return core_->call([&] {
    return Fence(std::make_shared<CudaMoment>(core_, follower_, core_->events->record(stream_), this,
                                              purpose_, fences_++, waits_.count()));
  });
}

void CudaStream::wait(const Fence& fence) {
  if (fence.state() == nullptr) return;
  const auto* moment = dynamic_cast<const CudaMoment*>(fence.state().get());
  const auto* task = dynamic_cast<const LaneMoment*>(fence.state().get());
  const std::lock_guard lock(mutex_);
  ASSERT((moment != nullptr && moment->core == core_) || (task != nullptr && task->core == core_),
         "{} for a fence of another device", describe_here("wait"));
  core_->runtime->check();
  if (fence.passed()) return;
  if (moment != nullptr)
    wait_for(*moment);
  else
    wait_for(*task);
}

template <class Act>
void CudaStream::timed_wait(Purpose awaited, const Act& act) {
  core_->call([&] {
    EventRef before = core_->events->record(stream_);
    act();
    EventRef after = core_->events->record(stream_);
    waits_.add(std::move(before), std::move(after), awaited);
  });
}

void CudaStream::wait_for(const CudaMoment& moment) {
  if (moment.stream == this) return;
  timed_wait(moment.purpose,
             [&] { CUDA_CHECK(cudaStreamWaitEvent(stream_, moment.event.get(), 0), describe_here("wait")); });
}

void CudaStream::wait_for(const LaneMoment& moment) {
  timed_wait(moment.purpose,
             [&] { core_->flags->wait(stream_, moment.word, moment.number, describe_here("wait")); });
}

void CudaStream::copy(Tensor dst, Tensor src) {
  const std::lock_guard lock(mutex_);
  const std::string what = describe_here("copy");
  ASSERT(dst.dtype() == src.dtype() && dst.numel() == src.numel(), "{}: {} x {} from {} x {}", what,
         dst.numel(), name_of(dst.dtype()), src.numel(), name_of(src.dtype()));
  core_->runtime->check();
  if (dst.empty()) return;
  ASSERT(!overlap(dst, src), "{}: source and destination overlap", what);
  const CudaMemory& memory = core_->memory;
  const cudaMemcpyKind kind = direction(memory.kind_of(dst, what), memory.kind_of(src, what));
  core_->call([&] {
    for (size_t at = 0; at < dst.bytes();) {
      std::byte *const to = dst.bytes_at(at), *const from = src.bytes_at(at);
      const size_t bytes = std::min({dst.bytes() - at, memory.contiguous(to), memory.contiguous(from)});
      CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream_), what);
      at += bytes;
    }
  });
}

void CudaStream::fill_zero(Tensor dst) {
  const std::lock_guard lock(mutex_);
  const std::string what = describe_here("fill_zero");
  core_->runtime->check();
  if (dst.empty()) return;
  const CudaMemory& memory = core_->memory;
  (void)memory.kind_of(dst, what);
  core_->call([&] {
    for (size_t at = 0; at < dst.bytes();) {
      const size_t bytes = std::min(dst.bytes() - at, memory.contiguous(dst.bytes_at(at)));
      CUDA_CHECK(cudaMemsetAsync(dst.bytes_at(at), 0, bytes, stream_), what);
      at += bytes;
    }
  });
}

void CudaStream::range(std::string_view name) {
  const std::lock_guard lock(mutex_);
  core_->runtime->check();
  range_ = name;
}

void* CudaStream::workspace(size_t bytes) {
  const std::lock_guard lock(mutex_);
  core_->runtime->check();
  if (bytes <= workspace_.bytes()) return workspace_.raw();
  core_->call([&] { CUDA_CHECK(cudaStreamSynchronize(stream_), describe_here("workspace")); });
  workspace_ = {};
  workspace_ = allocate(core_, bytes, "workspace");
  return workspace_.raw();
}

const CudaMoment& CudaStream::own(const Fence& fence) const {
  const auto* moment = dynamic_cast<const CudaMoment*>(fence.state().get());
  ASSERT(moment != nullptr && moment->stream == this,
         "times of stream \"{}\" between fences of another stream", name_);
  ASSERT(moment->passed(), "times of stream \"{}\" up to a fence that has not passed", name_);
  return *moment;
}

StreamTimes CudaStream::times(const Fence& from, const Fence& to) const {
  const CudaMoment &first = own(from), &last = own(to);
  ASSERT(first.number <= last.number, "times of stream \"{}\" from a later fence to an earlier one", name_);
  const std::lock_guard lock(mutex_);
  const auto idle = waits_.idle_ms(first.waits, last.waits);
  const auto of = [&](Purpose purpose) { return idle[static_cast<size_t>(purpose)]; };
  StreamTimes times;
  times.total_ms = elapsed_ms(first.event, last.event);
  times.d2h_ms = of(Purpose::d2h);
  times.adam_ms = of(Purpose::adam);
  times.h2d_ms = of(Purpose::h2d);
  times.other_ms = of(Purpose::other) + of(Purpose::compute);
  times.busy_ms = times.total_ms - times.d2h_ms - times.adam_ms - times.h2d_ms - times.other_ms;
  const auto since_known = [&](const EventRef& event) {
    return known_ns_ + std::llround(elapsed_ms(known_event_, event) * 1e6);
  };
  times.from_ns = since_known(first.event);
  times.to_ns = since_known(last.event);
  known_event_ = last.event;  // close to what is asked next: CUDA's float milliseconds are coarse over hours
  known_ns_ = times.to_ns;
  return times;
}

}  // namespace tandem::gpu::cuda
