#include "gpu/host/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gpu/memory_limit.h"

namespace tandem::gpu {

namespace {

/// Closes on the way out: the mappings keep the memory.
struct MemFile {
  int fd = memfd_create("tandem-device", MFD_CLOEXEC);
  ~MemFile() {
    if (fd >= 0) close(fd);
  }
};

std::byte* map(const MemFile& file, size_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, file.fd, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

}  // namespace

Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapped_ = (bytes + page - 1) / page * page;
  const MemFile file;
  if (file.fd >= 0 && ftruncate(file.fd, static_cast<off_t>(mapped_)) == 0) {
    face_ = map(file, mapped_, PROT_NONE);
    if (face_ != nullptr) body_ = map(file, mapped_, PROT_READ | PROT_WRITE);
  }
  if (body_ != nullptr) return;
  const int reason = errno;
  if (face_ != nullptr) munmap(face_, mapped_);
  throw Error(
      Status::does_not_fit,
      fmt::format("the system refuses {} of device memory: {}", mebibytes(bytes), std::strerror(reason)),
      kMemoryLimitKey, kMakeItFit);
}

Mapping::~Mapping() {
  munmap(face_, mapped_);
  munmap(body_, mapped_);
}

std::shared_ptr<const Mapping> DeviceMemory::allocate(size_t bytes, std::string_view scope) {
  const std::lock_guard lock(mutex_);
  check_memory_limit(scope, bytes, counters_.total().now, limit_);
  auto mapping = std::make_shared<const Mapping>(bytes);
  buffers_.emplace(mapping->face(), mapping);
  counters_.add(scope, bytes);
  return mapping;
}

void DeviceMemory::free(const Mapping& mapping, std::string_view scope) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(mapping.face());
  counters_.subtract(scope, mapping.bytes());
}

void DeviceMemory::pin(std::span<std::byte> host) {
  const std::lock_guard lock(mutex_);
  const auto after = pins_.lower_bound(host.data());
  const bool overlaps =
      (after != pins_.end() && after->first < host.data() + host.size()) ||
      (after != pins_.begin() && std::prev(after)->first + std::prev(after)->second > host.data());
  ASSERT(!overlaps, "{} bytes at {} overlap a pinned range", host.size(), fmt::ptr(host.data()));
  if (!host.empty()) pins_.emplace(host.data(), host.size());
}

void DeviceMemory::unpin(std::span<std::byte> host) noexcept {
  const std::lock_guard lock(mutex_);
  pins_.erase(host.data());
}

Operand DeviceMemory::on_device(Tensor tensor, std::string_view what) const {
  if (tensor.empty()) return {tensor, nullptr, nullptr};
  const std::lock_guard lock(mutex_);
  auto mapping = buffer_at(tensor.bytes_at(0));
  ASSERT(mapping != nullptr,
         "{}: {} bytes at {} lie in no live device buffer (host memory, or used after free)", what,
         tensor.bytes(), tensor.raw());
  const auto offset = static_cast<size_t>(tensor.bytes_at(0) - mapping->face());
  ASSERT(offset + tensor.bytes() <= mapping->bytes(),
         "{}: {} bytes at {} of a device buffer of {}: out of bounds", what, tensor.bytes(), offset,
         mapping->bytes());
  std::byte* bytes = mapping->body() + offset;
  return {tensor, bytes, std::move(mapping)};
}

Operand DeviceMemory::on_device_or_pinned(Tensor tensor, std::string_view what) const {
  if (tensor.empty()) return {tensor, nullptr, nullptr};
  {
    const std::lock_guard lock(mutex_);
    if (pinned(tensor)) return {tensor, tensor.bytes_at(0), nullptr};
    ASSERT(buffer_at(tensor.bytes_at(0)) != nullptr,
           "{}: {} bytes at {} lie neither in a live device buffer nor in pinned host memory", what,
           tensor.bytes(), tensor.raw());
  }
  return on_device(tensor, what);
}

Operand DeviceMemory::on_host(Tensor tensor, std::string_view what) const {
  if (tensor.empty()) return {tensor, nullptr, nullptr};
  const std::lock_guard lock(mutex_);
  ASSERT(buffer_at(tensor.bytes_at(0)) == nullptr,
         "{}: {} bytes at {} are device memory, which a lane can't touch", what, tensor.bytes(),
         tensor.raw());
  return {tensor, tensor.bytes_at(0), nullptr};
}

std::shared_ptr<const Mapping> DeviceMemory::buffer_at(const std::byte* address) const {
  auto after = buffers_.upper_bound(address);
  if (after == buffers_.begin()) return nullptr;
  const auto& mapping = std::prev(after)->second;
  return address < mapping->face() + mapping->bytes() ? mapping : nullptr;
}

bool DeviceMemory::pinned(Tensor tensor) const {
  const std::byte* begin = tensor.bytes_at(0);
  const auto after = pins_.upper_bound(begin);
  if (after == pins_.begin()) return false;
  const auto& [pin, bytes] = *std::prev(after);
  return begin + tensor.bytes() <= pin + bytes;
}

}  // namespace tandem::gpu
