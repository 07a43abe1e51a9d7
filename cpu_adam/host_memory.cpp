#include "cpu_adam/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace tandem {

namespace {

constexpr int64_t kTouchGrain = 256 << 10;  // bytes; a multiple of every page size in use but huge ones

class Mapping : public Buffer::Allocation {
 public:
  Mapping(size_t size, std::string_view scope, std::shared_ptr<MemoryCounters> counters)
      : scope_(scope), counters_(std::move(counters)) {
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int reason = errno;
    CHECK(mapped != MAP_FAILED, Status::does_not_fit,
          fmt::format("{} bytes of host memory refused by the system ({}); {} bytes held", size,
                      std::strerror(reason), counters_->total().now),
          fmt::format("host memory, {}", scope), "a smaller model or batch, or a higher limit (ulimit -v)");
    data = mapped;
    bytes = size;
    counters_->add(scope_, bytes);
  }
  ~Mapping() override {
    munmap(data, bytes);
    counters_->subtract(scope_, bytes);
  }

 private:
  const std::string scope_;
  const std::shared_ptr<MemoryCounters> counters_;
};

class MappedMemory : public HostMemory {
 public:
  MappedMemory(Workers& workers, HugePages huge) : workers_(workers), huge_(huge) {}

  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override {
    if (bytes == 0) return {};
    auto mapping = std::make_unique<Mapping>(bytes, scope, counters_);
    // A refusal (no such kernel feature) only means small pages.
    if (huge_ == HugePages::where_allowed) madvise(mapping->data, bytes, MADV_HUGEPAGE);
    touch(static_cast<std::byte*>(mapping->data), static_cast<int64_t>(bytes));
    return Buffer(std::move(mapping));
  }
  [[nodiscard]] const MemoryCounters& counters() const override { return *counters_; }

 private:
  void touch(std::byte* data, int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    workers_.ranges(bytes, kTouchGrain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += page) data[at] = std::byte{0};
    });
  }

  Workers& workers_;
  const HugePages huge_;
  // Shared with the buffers, which may outlive this.
  const std::shared_ptr<MemoryCounters> counters_ = std::make_shared<MemoryCounters>();
};

}  // namespace

std::unique_ptr<HostMemory> make_host_memory(Workers& workers, HugePages huge) {
  return std::make_unique<MappedMemory>(workers, huge);
}

}  // namespace tandem
