#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace tandem {

/// A contiguous view of up to four dimensions, row-major. Never an owner; knows nothing of where its memory
/// is. A default-constructed tensor is empty: no data, rank 0, numel() 0.
class Tensor {
 public:
  static constexpr int kMaxRank = 4;
  Tensor() = default;
  Tensor(void* data, DType dtype, std::span<const int64_t> shape) : data_(data), dtype_(dtype) {
    ASSERT(shape.size() <= kMaxRank, "rank {} above {}", shape.size(), kMaxRank);
    rank_ = static_cast<int>(shape.size());
    numel_ = 1;
    for (int i = 0; i < rank_; ++i) {
      ASSERT(shape[static_cast<size_t>(i)] >= 0, "negative dimension {}", shape[static_cast<size_t>(i)]);
      shape_[static_cast<size_t>(i)] = shape[static_cast<size_t>(i)];
      numel_ *= shape[static_cast<size_t>(i)];
    }
  }
  Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape)
      : Tensor(data, dtype, std::span<const int64_t>(shape.begin(), shape.size())) {}

  [[nodiscard]] void* raw() const { return data_; }
  [[nodiscard]] std::byte* bytes_at(size_t offset) const { return static_cast<std::byte*>(data_) + offset; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int64_t dim(int i) const {
    ASSERT(i >= 0 && i < rank_, "dimension {} of a tensor of rank {}", i, rank_);
    return shape_[static_cast<size_t>(i)];
  }
  [[nodiscard]] std::span<const int64_t> shape() const { return {shape_.data(), static_cast<size_t>(rank_)}; }
  [[nodiscard]] int64_t numel() const { return data_ == nullptr ? 0 : numel_; }
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }
  [[nodiscard]] bool empty() const { return numel() == 0; }

  /// The elements as T; the dtype must be T's. The address may be one that this thread can't read (device
  /// memory).
  template <class T>
  [[nodiscard]] T* data() const {
    ASSERT(dtype_ == DTypeOf<T>::value, "tensor of {} read as {}", name_of(dtype_),
           name_of(DTypeOf<T>::value));
    return static_cast<T*>(data_);
  }

  /// The same elements under another shape of equal size.
  [[nodiscard]] Tensor view(std::initializer_list<int64_t> shape) const {
    Tensor other(data_, dtype_, shape);
    ASSERT(other.numel_ == numel_, "view of {} elements as {}", numel_, other.numel_);
    return other;
  }
  /// Elements [begin, begin + count) of the flat order, as a vector.
  [[nodiscard]] Tensor flat(int64_t begin, int64_t count) const {
    ASSERT(begin >= 0 && count >= 0 && begin + count <= numel_, "elements {}+{} of {}", begin, count, numel_);
    return {bytes_at(static_cast<size_t>(begin) * size_of(dtype_)), dtype_, {count}};
  }
  [[nodiscard]] Tensor flat() const { return flat(0, numel_); }
  /// Rows [begin, begin + count) of the first dimension.
  [[nodiscard]] Tensor rows(int64_t begin, int64_t count) const {
    ASSERT(rank_ >= 1 && begin >= 0 && count >= 0 && begin + count <= shape_[0], "rows {}+{} of {}", begin,
           count, rank_ >= 1 ? shape_[0] : 0);
    const int64_t row = shape_[0] == 0 ? 0 : numel_ / shape_[0];
    std::array<int64_t, kMaxRank> shape = shape_;
    shape[0] = count;
    return {bytes_at(static_cast<size_t>(begin * row) * size_of(dtype_)), dtype_,
            std::span<const int64_t>(shape.data(), static_cast<size_t>(rank_))};
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  int rank_ = 0;
  int64_t numel_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
};

}  // namespace tandem
