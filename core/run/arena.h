#pragma once
// Scratch memory of one stream, planned once: a fixed device buffer cut first-fit, the same cuts for the same
// calls.
#include <map>
#include <memory>
#include <vector>

#include "core/device/device.h"

namespace tandem {

class Arena;

/// A tensor in an arena; goes back on destruction. Memory that another stream still uses goes back by
/// release_after.
class ArenaTensor {
 public:
  ArenaTensor() = default;
  ArenaTensor(Arena& arena, Tensor tensor) : arena_(&arena), tensor_(tensor) {}
  ArenaTensor(ArenaTensor&& other) noexcept { *this = std::move(other); }
  ArenaTensor& operator=(ArenaTensor&& other) noexcept;
  ~ArenaTensor();
  [[nodiscard]] Tensor get() const { return tensor_; }
  operator Tensor() const { return tensor_; }  // NOLINT: reads as the tensor it is
  void reset();
  /// Gives the memory back; whoever takes it next waits on the arena's stream for the fence.
  void release_after(Fence fence);

 private:
  Arena* arena_ = nullptr;
  Tensor tensor_;
};

/// Not thread-safe: belongs to the thread that enqueues on its stream. Cuts are multiples of 256 bytes.
class Arena {
 public:
  static constexpr size_t kAlign = 256;
  /// The buffer and the stream must outlive the arena; all tensors must be back before it ends.
  Arena(Device& device, Buffer buffer, Stream& stream);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// InternalError when nothing fits: the plan was wrong.
  [[nodiscard]] ArenaTensor take(DType dtype, std::initializer_list<int64_t> shape);
  [[nodiscard]] size_t capacity() const { return buffer_.bytes(); }
  /// The highest number of bytes ever taken at once, and the highest end of a cut.
  [[nodiscard]] size_t peak() const { return peak_; }
  [[nodiscard]] size_t high_water() const { return high_water_; }
  static size_t rounded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

 private:
  friend class ArenaTensor;
  struct Gap {
    size_t bytes = 0;
    std::vector<Fence> fences;  ///< other streams' uses that must pass before the next one
  };
  void give_back(Tensor tensor, Fence fence);
  Device& device_;
  Buffer buffer_;
  Stream& stream_;
  std::map<size_t, Gap> gaps_;  ///< by offset
  std::map<size_t, size_t> taken_;
  size_t used_ = 0, peak_ = 0, high_water_ = 0;
};

}  // namespace tandem
