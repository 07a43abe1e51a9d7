#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/tensor.h"
#include "core/device/memory.h"

namespace tandem::gpu {

/// Device memory of the host device: a memfd mapped twice. Tensors carry the face, which nobody can touch;
/// work translates to the body.
class Mapping {
 public:
  /// Error(does_not_fit) if the system refuses.
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] std::byte* face() const { return face_; }
  [[nodiscard]] std::byte* body() const { return body_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;   ///< as asked for
  size_t mapped_;  ///< in whole pages
  std::byte* face_ = nullptr;
  std::byte* body_ = nullptr;
};

/// The operand of queued work: the tensor, where its bytes can be touched, and what keeps them mapped until
/// the work is done (null for host memory).
struct Operand {
  Tensor tensor;
  std::byte* bytes = nullptr;
  std::shared_ptr<const Mapping> mapping;
};

/// All memory that a host device knows: its own and the pinned ranges of the host. Thread-safe.
class DeviceMemory {
 public:
  /// limit: bytes that may be allocated at once.
  explicit DeviceMemory(size_t limit) : limit_(limit) {}
  [[nodiscard]] size_t limit() const { return limit_; }
  [[nodiscard]] const MemoryCounters& counters() const { return counters_; }

  /// Error(does_not_fit), naming scope, need and limit, above the limit.
  [[nodiscard]] std::shared_ptr<const Mapping> allocate(size_t bytes, std::string_view scope);
  /// From now on the face is unknown. The bytes go back when no operand holds them any more.
  void free(const Mapping& mapping, std::string_view scope);

  /// Pinning is a label here. A range that overlaps a pinned one is an error of ours.
  void pin(std::span<std::byte> host);
  void unpin(std::span<std::byte> host) noexcept;

  /// The operand for `what` ('kernel "add" on ...', for messages). InternalError if the tensor does not lie
  /// in one live buffer; in a live buffer or one pinned range; or if it lies in device memory.
  [[nodiscard]] Operand on_device(Tensor tensor, std::string_view what) const;
  [[nodiscard]] Operand on_device_or_pinned(Tensor tensor, std::string_view what) const;
  [[nodiscard]] Operand on_host(Tensor tensor, std::string_view what) const;

 private:
  [[nodiscard]] std::shared_ptr<const Mapping> buffer_at(const std::byte* address) const;
  [[nodiscard]] bool pinned(Tensor tensor) const;

  const size_t limit_;
  MemoryCounters counters_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<const Mapping>> buffers_;  ///< by face
  std::map<const std::byte*, size_t> pins_;                             ///< bytes by begin; disjoint
};

}  // namespace tandem::gpu
