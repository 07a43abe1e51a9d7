#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"

namespace tandem {

/// Bytes held by scope ("weights", "gradients", ...), now and at most. One per tier; thread-safe.
class MemoryCounters {
 public:
  struct Bytes {
    size_t now = 0, peak = 0;
  };
  void add(std::string_view scope, size_t bytes);
  void subtract(std::string_view scope, size_t bytes);
  /// All scopes; the entry "" is the total, whose peak is that of the sum.
  [[nodiscard]] std::map<std::string, Bytes, std::less<>> scopes() const;
  [[nodiscard]] Bytes total() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Bytes, std::less<>> scopes_;
  Bytes total_;
};

/// The owner of one allocation: move-only; frees on destruction. A default-constructed buffer is empty.
class Buffer {
 public:
  /// What a device or host allocator hands out; its destructor frees.
  class Allocation {
   public:
    virtual ~Allocation() = default;
    void* data = nullptr;
    size_t bytes = 0;
  };
  Buffer() = default;
  explicit Buffer(std::unique_ptr<Allocation> allocation) : allocation_(std::move(allocation)) {}
  [[nodiscard]] bool empty() const { return allocation_ == nullptr; }
  [[nodiscard]] size_t bytes() const { return allocation_ ? allocation_->bytes : 0; }
  [[nodiscard]] void* raw() const { return allocation_ ? allocation_->data : nullptr; }
  /// A view from byte `offset` on.
  [[nodiscard]] Tensor tensor(DType dtype, std::initializer_list<int64_t> shape, size_t offset = 0) const {
    Tensor view(static_cast<std::byte*>(raw()) + offset, dtype, shape);
    ASSERT(offset + view.bytes() <= bytes(), "view of {} bytes at {} in a buffer of {}", view.bytes(), offset,
           bytes());
    return view;
  }

 private:
  std::unique_ptr<Allocation> allocation_;
};

/// A call of Workers::ranges to come over so many bytes of a buffer, cut at multiples of grain, from byte
/// `begin` of the buffer on.
struct StaticRange {
  size_t begin = 0, bytes = 0, grain = 1;
};

/// Who will work on a buffer, so that its pages can be put where that thread is.
struct BufferUse {
  std::vector<StaticRange> ranges;  ///< disjoint; bytes in none of them are for nobody in particular
  std::optional<int> node;          ///< the NUMA node (os index) that they belong on whoever works on them
};

/// Host memory in exact sizes, page-aligned, zero-filled, placed by its implementation (NUMA slabs).
/// Throws Error(does_not_fit) when the system refuses.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  virtual ~HostMemory() = default;
  [[nodiscard]] virtual Buffer allocate(size_t bytes, std::string_view scope) = 0;
  /// The same, placed for that use by an implementation that can place memory.
  [[nodiscard]] virtual Buffer allocate_for(size_t bytes, std::string_view scope, const BufferUse& /*use*/) {
    return allocate(bytes, scope);
  }
  [[nodiscard]] virtual const MemoryCounters& counters() const = 0;
};

}  // namespace tandem
