#include "gpu/cuda/cuda_memory.h"

#include <unistd.h>

#include <algorithm>

#include "gpu/cuda/checks.h"
#include "gpu/memory_limit.h"

namespace tandem::gpu::cuda {

namespace {

/// The end of the chunk that begins there: at a page, but for the last one.
std::byte* chunk_end(std::byte* begin, std::byte* end, size_t chunk) {
  if (static_cast<size_t>(end - begin) <= chunk) return end;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t over = (reinterpret_cast<uintptr_t>(begin) + chunk) % page;
  return begin + (over < chunk ? chunk - over : chunk + page - over);
}

}  // namespace

void* CudaMemory::allocate(size_t bytes, std::string_view scope) {
  const std::lock_guard lock(mutex_);
  check_memory_limit(scope, bytes, counters_.total().now, limit_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // a refusal, nothing that lasts
    throw Error(Status::does_not_fit,
                fmt::format("the card has no {} for \"{}\", though the limit of {} is not reached: another "
                            "program uses its memory",
                            mebibytes(bytes), scope, mebibytes(limit_)),
                kMemoryLimitKey, "end the other program, or lower device.memory_limit");
  }
  CUDA_CHECK(status, fmt::format("device memory for \"{}\"", scope));
  buffers_.emplace(static_cast<const std::byte*>(data), bytes);
  counters_.add(scope, bytes);
  return data;
}

void CudaMemory::free(void* data, size_t bytes, std::string_view scope) noexcept {
  const std::lock_guard lock(mutex_);
  CUDA_LOG(cudaFree(data));
  buffers_.erase(static_cast<const std::byte*>(data));
  counters_.subtract(scope, bytes);
}

void CudaMemory::pin(std::span<std::byte> host) {
  if (host.empty()) return;
  const std::lock_guard lock(mutex_);
  std::byte* const end = host.data() + host.size();
  const auto after = pins_.lower_bound(host.data());
  const bool overlaps =
      (after != pins_.end() && after->first < end) ||
      (after != pins_.begin() && std::prev(after)->first + std::prev(after)->second > host.data());
  ASSERT(!overlaps, "{} bytes at {} overlap a pinned range", host.size(), fmt::ptr(host.data()));
  for (std::byte* begin = host.data(); begin != end;) {
    std::byte* const next = chunk_end(begin, end, pin_chunk_);
    const auto bytes = static_cast<size_t>(next - begin);
    if (const cudaError_t status = cudaHostRegister(begin, bytes, cudaHostRegisterPortable);
        status != cudaSuccess) {
      (void)cudaGetLastError();  // a refusal, nothing that lasts
      unpin_chunks(host.data(), begin);
      throw Error(Status::does_not_fit,
                  fmt::format("the driver refuses to pin {} of host memory after {}: {} ({})",
                              mebibytes(host.size()), mebibytes(static_cast<size_t>(begin - host.data())),
                              cudaGetErrorName(status), cudaGetErrorString(status)),
                  "",
                  "a container or machine with more memory (ulimit -l does not matter), or a smaller model");
    }
    chunks_.emplace(begin, bytes);
    begin = next;
  }
  pins_.emplace(host.data(), host.size());
}

void CudaMemory::unpin(std::span<std::byte> host) noexcept {
  const std::lock_guard lock(mutex_);
  pins_.erase(host.data());
  unpin_chunks(host.data(), host.data() + host.size());
}

void CudaMemory::unpin_chunks(const std::byte* begin, const std::byte* end) noexcept {
  const auto first = chunks_.lower_bound(begin), last = chunks_.lower_bound(end);
  for (auto chunk = first; chunk != last; ++chunk)
    CUDA_LOG(cudaHostUnregister(const_cast<std::byte*>(chunk->first)));
  chunks_.erase(first, last);
}

CudaMemory::Kind CudaMemory::kind_of(Tensor tensor, std::string_view what) const {
  const std::lock_guard lock(mutex_);
  const std::byte* begin = tensor.bytes_at(0);
  for (const Kind kind : {Kind::device, Kind::pinned}) {
    const Spans& spans = kind == Kind::device ? buffers_ : pins_;
    const auto span = holding(spans, begin);
    if (span == spans.end()) continue;
    const auto offset = static_cast<size_t>(begin - span->first);
    ASSERT(offset + tensor.bytes() <= span->second, "{}: {} bytes at {} of a {} of {}: out of bounds", what,
           tensor.bytes(), offset, kind == Kind::device ? "device buffer" : "pinned range", span->second);
    return kind;
  }
  throw InternalError(__FILE__, __LINE__,
                      fmt::format("{}: {} bytes at {} lie neither in a live device buffer (pageable, or used "
                                  "after free) nor in pinned host memory",
                                  what, tensor.bytes(), tensor.raw()));
}

void CudaMemory::require_host(Tensor tensor, std::string_view what) const {
  if (tensor.empty()) return;
  const std::lock_guard lock(mutex_);
  ASSERT(holding(buffers_, tensor.bytes_at(0)) == buffers_.end(),
         "{}: {} bytes at {} are device memory, which a lane can't touch", what, tensor.bytes(),
         tensor.raw());
}

size_t CudaMemory::contiguous(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  for (const Spans* spans : {&buffers_, &chunks_})
    if (const auto span = holding(*spans, address); span != spans->end())
      return span->second - static_cast<size_t>(address - span->first);
  return 0;
}

CudaMemory::Spans::const_iterator CudaMemory::holding(const Spans& spans, const std::byte* address) {
  const auto after = spans.upper_bound(address);
  if (after == spans.begin()) return spans.end();
  const auto span = std::prev(after);
  return address < span->first + span->second ? span : spans.end();
}

}  // namespace tandem::gpu::cuda
