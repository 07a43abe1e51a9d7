#include "gpu/host/host_stream.h"

#include <cstring>

namespace tandem::gpu {

StreamCore::StreamCore(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceMemory> memory,
                       std::string_view name, bool lane, std::shared_ptr<Runner> runner)
    : runtime_(std::move(runtime)),
      memory_(std::move(memory)),
      queue_(std::string(name), lane, std::move(runner)) {
  runtime_->open(queue_);
}

StreamCore::~StreamCore() { runtime_->close(queue_); }

Operand StreamCore::operand(Tensor tensor, std::string_view what) const {
  return queue_.lane ? memory_->on_host(tensor, what) : memory_->on_device_or_pinned(tensor, what);
}

void StreamCore::copy(Tensor dst, Tensor src) {
  const std::string what = runtime_->describe(queue_, "copy");
  ASSERT(dst.dtype() == src.dtype() && dst.numel() == src.numel(), "{}: {} x {} from {} x {}", what,
         dst.numel(), name_of(dst.dtype()), src.numel(), name_of(src.dtype()));
  const Access reads = read_of(src);
  const Access writes = write_of(dst);
  ASSERT(reads.end <= writes.begin || writes.end <= reads.begin, "{}: source and destination overlap", what);
  runtime_->enqueue(queue_, {{"", "copy"},
                             {reads, writes},
                             [to = operand(dst, what), from = operand(src, what)] {
                               if (!to.tensor.empty()) std::memcpy(to.bytes, from.bytes, to.tensor.bytes());
                             },
                             dst.bytes()});
}

void StreamCore::fill(std::string_view name, Tensor dst, uint8_t byte) {
  const std::string what = runtime_->describe(queue_, name);
  runtime_->enqueue(queue_, {{"", std::string(name)}, {write_of(dst)}, [to = operand(dst, what), byte] {
                               if (!to.tensor.empty()) std::memset(to.bytes, byte, to.tensor.bytes());
                             }});
}

void HostTaskLane::run(HostTask task) {
  Work work{{"task", std::move(task.name)}, {}, std::move(task.body)};
  const std::string what = core().runtime().describe(core().queue(), work.label.text());
  ASSERT(work.body != nullptr, "{} has no body", what);
  for (const Tensor& tensor : task.reads) {
    (void)core().operand(tensor, what);
    work.accesses.push_back(read_of(tensor));
  }
  for (const Tensor& tensor : task.writes) {
    (void)core().operand(tensor, what);
    work.accesses.push_back(write_of(tensor));
  }
  core().runtime().enqueue(core().queue(), std::move(work));
}

}  // namespace tandem::gpu
