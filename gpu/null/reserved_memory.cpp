#include "gpu/null/reserved_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tandem::gpu {

class ReservedMemory::Reservation final : public Buffer::Allocation {
 public:
  Reservation(ReservedMemory& owner, Tier tier, size_t size, std::string_view scope, Touch touch)
      : owner_(owner), tier_(tier), scope_(scope) {
    const int protection = touch == Touch::allowed ? PROT_READ | PROT_WRITE : PROT_NONE;
    data = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
      throw Error(Status::does_not_fit,
                  fmt::format("the system refuses to reserve {} bytes of address space for \"{}\": {}", size,
                              scope, std::strerror(errno)),
                  "", "`ulimit -v unlimited`, or a smaller model");
    bytes = size;
    owner_.reserved_.emplace(begin(), Range{bytes, tier_, scope_});
    owner_.counters(tier_).add(scope_, bytes);
  }
  ~Reservation() override {
    owner_.counters(tier_).subtract(scope_, bytes);
    owner_.reserved_.erase(begin());
    munmap(data, bytes);
  }

 private:
  [[nodiscard]] const std::byte* begin() const { return static_cast<const std::byte*>(data); }
  ReservedMemory& owner_;
  const Tier tier_;
  const std::string scope_;
};

class ReservedMemory::Registration final : public Pin::Registration {
 public:
  Registration(ReservedMemory& owner, std::span<std::byte> host, std::string scope)
      : owner_(owner), host_(host), scope_(std::move(scope)) {
    owner_.pins_.emplace(host_.data(), Range{host_.size(), Tier::host, scope_});
    owner_.pinned_.add(scope_, host_.size());
  }
  ~Registration() override {
    owner_.pinned_.subtract(scope_, host_.size());
    owner_.pins_.erase(host_.data());
  }

 private:
  ReservedMemory& owner_;
  const std::span<std::byte> host_;
  const std::string scope_;
};

Buffer ReservedMemory::reserve(Tier tier, size_t bytes, std::string_view scope, Touch touch) {
  if (bytes == 0) return {};
  return Buffer(std::make_unique<Reservation>(*this, tier, bytes, scope, touch));
}

Pin ReservedMemory::pin(std::span<std::byte> host) {
  if (host.empty()) return {};
  const Range* range = holder(reserved_, host.data(), host.size());
  ASSERT(range != nullptr && range->tier == Tier::host, "{} bytes to be pinned are no live host memory",
         host.size());
  return Pin(std::make_unique<Registration>(*this, host, range->scope));
}

const ReservedMemory::Range* ReservedMemory::holder(const Ranges& ranges, const std::byte* begin,
                                                    size_t bytes) {
  const auto after = ranges.upper_bound(begin);
  if (after == ranges.begin()) return nullptr;
  const auto& [first, range] = *std::prev(after);
  return begin + bytes <= first + range.bytes ? &range : nullptr;
}

ReservedMemory::Tier ReservedMemory::tier_of(Tensor tensor, std::string_view what) const {
  const Range* range = holder(reserved_, tensor.bytes_at(0), tensor.bytes());
  ASSERT(range != nullptr, "{}: {} bytes lie in no live buffer", what, tensor.bytes());
  return range->tier;
}

bool ReservedMemory::is_pinned(Tensor tensor) const {
  return holder(pins_, tensor.bytes_at(0), tensor.bytes()) != nullptr;
}

Buffer NullMemory::allocate(size_t bytes, std::string_view scope) {
  const bool written = std::find(written_.begin(), written_.end(), scope) != written_.end();
  return memory_.reserve(ReservedMemory::Tier::host, bytes, scope, written ? Touch::allowed : Touch::never);
}

}  // namespace tandem::gpu
