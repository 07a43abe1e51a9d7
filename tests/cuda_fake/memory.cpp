// Memory of the card and of the host, and what moves it.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

#include "core/base/error.h"
#include "tests/cuda_fake/state.h"

namespace tandem::cuda_fake {

namespace {

/// The entry whose bytes hold the address, or end(). `bytes_of` says how many an entry has.
template <class Map, class BytesOf>
auto holding(Map& map, const std::byte* address, const BytesOf& bytes_of) {
  const auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  const auto entry = std::prev(after);
  return address < entry->first + bytes_of(entry->second) ? entry : map.end();
}

size_t bytes_of_mapping(const std::shared_ptr<const gpu::Mapping>& mapping) { return mapping->bytes(); }
size_t bytes_of_span(size_t bytes) { return bytes; }

void protect_buffers(int protection) {
  for (const auto& [face, mapping] : state().buffers) mprotect(mapping->face(), mapping->bytes(), protection);
}

size_t bytes_pinned() {
  size_t sum = 0;
  for (const auto& [begin, bytes] : state().pins) sum += bytes;
  return sum;
}

gpu::Access access(const void* begin, size_t bytes, bool write) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  return {at, at + bytes, write};
}

Place past_the_end(const std::string& what, const std::byte* at, size_t bytes, const char* kind, size_t has) {
  (void)fault(
      fmt::format("{}: {} bytes at {} of a {} of {}: past the end", what, bytes, fmt::ptr(at), kind, has));
  return {};
}

}  // namespace

Place place_of(const void* address, size_t bytes, const std::string& what) {
  State& fake = state();
  const auto* at = static_cast<const std::byte*>(address);
  if (const auto buffer = holding(fake.buffers, at, bytes_of_mapping); buffer != fake.buffers.end()) {
    const auto& mapping = buffer->second;
    const auto offset = static_cast<size_t>(at - buffer->first);
    if (offset + bytes > mapping->bytes()) return past_the_end(what, at, bytes, "buffer", mapping->bytes());
    return {Place::Kind::device, mapping->body() + offset, mapping};
  }
  if (const auto pin = holding(fake.pins, at, bytes_of_span); pin != fake.pins.end()) {
    if (at + bytes > pin->first + pin->second)
      return past_the_end(what, at, bytes, "pinned span", pin->second);
    return {Place::Kind::pinned, const_cast<std::byte*>(at), nullptr};
  }
  const bool was_freed = holding(fake.freed, at, bytes_of_span) != fake.freed.end();
  (void)fault(fmt::format("{}: {} bytes at {} are {}", what, bytes, address,
                          was_freed ? "used after they were freed" : "pageable"));
  return {};
}

OpenMemory::OpenMemory() { protect_buffers(PROT_READ | PROT_WRITE); }
OpenMemory::~OpenMemory() { protect_buffers(PROT_NONE); }

}  // namespace tandem::cuda_fake

using namespace tandem::cuda_fake;  // NOLINT: the C interface of the runtime is global
using tandem::gpu::Mapping;
namespace gpu = tandem::gpu;

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  FAKE_CALL(cudaMalloc);
  size_t held = 0;
  for (const auto& [face, mapping] : fake.buffers) held += mapping->bytes();
  if (bytes > fake.settings.memory - held) return done(cudaErrorMemoryAllocation);
  auto mapping = std::make_shared<const Mapping>(bytes);
  std::memset(mapping->body(), 0xFF, bytes);  // a NaN in every float type
  *data = mapping->face();
  std::erase_if(fake.freed, [&](const auto& span) {
    return span.first < mapping->face() + bytes && mapping->face() < span.first + span.second;
  });
  fake.buffers.emplace(mapping->face(), std::move(mapping));
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  State& fake = state();
  const Lock lock(fake.mutex);
  const auto buffer = fake.buffers.find(static_cast<std::byte*>(data));
  if (buffer == fake.buffers.end()) return done(fault("cudaFree of what is no buffer"));
  const size_t bytes = buffer->second->bytes();
  if (const std::string user = user_of(buffer->first, bytes); !user.empty() && fake.sticky == cudaSuccess)
    (void)fault("a buffer is freed before " + user);
  fake.freed.emplace(buffer->first, bytes);
  const gpu::Access gone = access(buffer->first, bytes, true);
  fake.accesses.forget(gone.begin, gone.end);
  fake.buffers.erase(buffer);
  return done(fake.sticky);
}

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned flags) {
  FAKE_CALL(cudaHostRegister);
  auto* const begin = static_cast<std::byte*>(data);
  if (flags != cudaHostRegisterPortable) return done(fault("memory is pinned with other flags"));
  for (const auto& [pin, size] : fake.pins)
    if (pin < begin + bytes && begin < pin + size) return done(cudaErrorHostMemoryAlreadyRegistered);
  if (bytes > fake.settings.pinnable - bytes_pinned()) return done(cudaErrorMemoryAllocation);
  fake.pins.emplace(begin, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* data) {
  State& fake = state();
  const Lock lock(fake.mutex);
  const auto pin = fake.pins.find(static_cast<std::byte*>(data));
  if (pin == fake.pins.end())
    return done(fault("memory is unpinned that is not pinned", cudaErrorHostMemoryNotRegistered));
  if (const std::string user = user_of(pin->first, pin->second); !user.empty() && fake.sticky == cudaSuccess)
    (void)fault("memory is unpinned before " + user);
  const gpu::Access gone = access(pin->first, pin->second, true);
  fake.accesses.forget(gone.begin, gone.end);
  fake.pins.erase(pin);
  return done(fake.sticky);
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags) {
  FAKE_CALL(cudaHostAlloc);
  if ((flags & cudaHostAllocMapped) == 0) return done(fault("pinned memory that the card does not see"));
  auto mapping = std::make_shared<const Mapping>(bytes);
  *data = mapping->body();
  fake.mapped.emplace(mapping->body(), std::move(mapping));
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  State& fake = state();
  const Lock lock(fake.mutex);
  const auto found = fake.mapped.find(static_cast<std::byte*>(data));
  if (found == fake.mapped.end()) return done(fault("cudaFreeHost of what it did not allocate"));
  if (const std::string user = user_of(found->first, found->second->bytes()); !user.empty())
    (void)fault("mapped memory is freed before " + user);
  fake.mapped.erase(found);
  return done(fake.sticky);
}

cudaError_t cudaHostGetDevicePointer(void** card, void* host, unsigned) {
  FAKE_CALL(cudaHostGetDevicePointer);
  const auto found = fake.mapped.find(static_cast<std::byte*>(host));
  if (found == fake.mapped.end()) return done(fault("the card's address of memory that is not mapped"));
  *card = found->second->face();
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  FAKE_CALL(cudaMemGetInfo);
  size_t held = 0;
  for (const auto& [face, mapping] : fake.buffers) held += mapping->bytes();
  *total = fake.settings.memory;
  *free = fake.settings.memory - held;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  FAKE_CALL(cudaMemcpyAsync);
  const Place to = place_of(dst, bytes, "copy"), from = place_of(src, bytes, "copy");
  if (to.kind == Place::Kind::unknown || from.kind == Place::Kind::unknown)
    return done(cudaErrorInvalidValue);
  const bool to_card = to.kind == Place::Kind::device, from_card = from.kind == Place::Kind::device;
  const cudaMemcpyKind right = to_card ? (from_card ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                       : (from_card ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (kind != right)
    return done(
        fault(fmt::format("a copy of kind {} between memory that is of kind {}", int{kind}, int{right}),
              cudaErrorInvalidMemcpyDirection));
  return done(enqueue(
      stream, {.text = "copy",
               .uses = {{static_cast<std::byte*>(dst), bytes}, {static_cast<const std::byte*>(src), bytes}},
               .accesses = {access(src, bytes, false), access(dst, bytes, true)},
               .run = [to, from, bytes] { std::memcpy(to.bytes, from.bytes, bytes); },
               .is_work = true}));
}

cudaError_t cudaMemsetAsync(void* dst, int byte, size_t bytes, cudaStream_t stream) {
  FAKE_CALL(cudaMemsetAsync);
  const Place to = place_of(dst, bytes, "fill");
  if (to.kind == Place::Kind::unknown) return done(cudaErrorInvalidValue);
  return done(enqueue(stream, {.text = "fill",
                               .uses = {{static_cast<std::byte*>(dst), bytes}},
                               .accesses = {access(dst, bytes, true)},
                               .run = [to, byte, bytes] { std::memset(to.bytes, byte, bytes); },
                               .is_work = true}));
}

}  // extern "C"
