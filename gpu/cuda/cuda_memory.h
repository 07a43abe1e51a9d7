#pragma once
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <span>
#include <string_view>

#include "core/base/tensor.h"
#include "core/device/memory.h"

namespace tandem::gpu::cuda {

/// Device memory by cudaMalloc, pinned memory by cudaHostRegister, and what is known of both. Thread-safe.
class CudaMemory {
 public:
  enum class Kind : uint8_t { device, pinned };

  /// limit: bytes that may be allocated at once. Spans are pinned in chunks of that many bytes, which end at
  /// pages.
  CudaMemory(size_t limit, size_t pin_chunk) : limit_(limit), pin_chunk_(pin_chunk) {}
  [[nodiscard]] size_t limit() const { return limit_; }
  [[nodiscard]] const MemoryCounters& counters() const { return counters_; }

  /// Error(does_not_fit), naming scope, need and limit, above the limit or where the card has less.
  [[nodiscard]] void* allocate(size_t bytes, std::string_view scope);
  void free(void* data, size_t bytes, std::string_view scope) noexcept;

  /// Error(does_not_fit) where the driver refuses; then nothing of it is pinned. An overlap with what is
  /// pinned is an error of ours.
  void pin(std::span<std::byte> host);
  void unpin(std::span<std::byte> host) noexcept;

  /// Where the tensor lies. InternalError if that is neither one live buffer nor one pinned span; `what` is
  /// for the message.
  [[nodiscard]] Kind kind_of(Tensor tensor, std::string_view what) const;
  /// InternalError if it begins in a live buffer.
  void require_host(Tensor tensor, std::string_view what) const;
  /// Bytes from the address to the end of its buffer or pinned chunk: one copy must not go further.
  [[nodiscard]] size_t contiguous(const std::byte* address) const;

 private:
  using Spans = std::map<const std::byte*, size_t>;  // bytes by begin; disjoint
  /// The span that holds the address, or end().
  static Spans::const_iterator holding(const Spans& spans, const std::byte* address);
  void unpin_chunks(const std::byte* begin, const std::byte* end) noexcept;

  const size_t limit_, pin_chunk_;
  MemoryCounters counters_;
  mutable std::mutex mutex_;
  Spans buffers_;
  Spans pins_;    ///< as asked for
  Spans chunks_;  ///< as registered
};

}  // namespace tandem::gpu::cuda
