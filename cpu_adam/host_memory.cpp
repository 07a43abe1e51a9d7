#include "cpu_adam/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "cpu_adam/numa_memory.h"

namespace tandem {

namespace {

constexpr int64_t kTouchGrain = 256 << 10;     // bytes; a multiple of every page size in use but huge ones
constexpr size_t kHugePage = size_t{2} << 20;  // bytes; of other sizes on some Arm kernels: then an estimate

int64_t page_bytes() { return sysconf(_SC_PAGESIZE); }

/// Touches the pages whose middle is in [begin, end).
void touch_middles(std::byte* memory, int64_t begin, int64_t end) {
  const int64_t page = page_bytes(), half = page / 2;
  for (int64_t at = (begin + half - 1) / page * page + half; at < end; at += page) memory[at] = std::byte{0};
}

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
    return allocate_for(bytes, scope, {});
  }
  [[nodiscard]] Buffer allocate_for(size_t bytes, std::string_view scope, const BufferUse& use) override {
    if (bytes == 0) return {};
    auto mapping = std::make_unique<Mapping>(bytes, scope, counters_);
    const std::span<std::byte> memory(static_cast<std::byte*>(mapping->data), bytes);
    // What the system refuses here has no consequence but for speed.
    const int nodes = use.node ? 1 : workers_.nodes();
    if (huge_ == HugePages::where_allowed && huge_pages_pay(bytes, use.ranges.size(), nodes))
      madvise(memory.data(), bytes, MADV_HUGEPAGE);
    if (use.node) (void)bind_to_node(memory, *use.node);
    first_touch(workers_, memory, use.ranges);
    return Buffer(std::move(mapping));
  }
  [[nodiscard]] const MemoryCounters& counters() const override { return *counters_; }

 private:
  Workers& workers_;
  const HugePages huge_;
  // Shared with the buffers, which may outlive this.
  const std::shared_ptr<MemoryCounters> counters_ = std::make_shared<MemoryCounters>();
};

}  // namespace

void first_touch(Workers& workers, std::span<std::byte> memory, std::span<const StaticRange> ranges) {
  for (const StaticRange& range : ranges) {
    ASSERT(range.begin + range.bytes <= memory.size(), "a use of {} bytes at {} of {}", range.bytes,
           range.begin, memory.size());
    const auto first = static_cast<int64_t>(range.begin);
    workers.ranges(
        static_cast<int64_t>(range.bytes), static_cast<int64_t>(range.grain),
        [&](int64_t begin, int64_t end) { touch_middles(memory.data(), first + begin, first + end); });
  }
  // The rest; a page that has been touched stays where it is.
  workers.ranges(static_cast<int64_t>(memory.size()), kTouchGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += page_bytes()) memory[static_cast<size_t>(at)] = std::byte{0};
  });
}

bool huge_pages_pay(size_t bytes, size_t ranges, int nodes) {
  const size_t borders = nodes > 1 ? ranges * static_cast<size_t>(nodes) : 0;
  return borders * (kHugePage / 2) <= bytes / 20;
}

std::string huge_page_policy(const std::string& sysfs_root) {
  std::ifstream in(sysfs_root + "/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; in >> word;)  // "always [madvise] never"
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  return "unknown";
}

std::unique_ptr<HostMemory> make_host_memory(Workers& workers, HugePages huge) {
  return std::make_unique<MappedMemory>(workers, huge);
}

}  // namespace tandem
