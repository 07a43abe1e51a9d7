#pragma once
#include "core/device/device.h"
#include "core/run/arena.h"

namespace tandem {

/// A piece of scratch memory handed out front to back, for one phase of work on one stream. Cuts as the
/// arena's.
class Scratch {
 public:
  Scratch(Device& device, Stream& stream, Tensor memory)
      : device_(device), stream_(stream), memory_(memory.flat()) {}
  [[nodiscard]] Tensor take(DType dtype, std::initializer_list<int64_t> shape) {
    const Tensor tensor(memory_.bytes_at(used_), dtype, shape);
    used_ += Arena::rounded(tensor.bytes());
    ASSERT(used_ <= memory_.bytes(), "a phase takes {} bytes of a scratch of {}", used_, memory_.bytes());
    device_.scratch(stream_, tensor);
    return tensor;
  }

 private:
  Device& device_;
  Stream& stream_;
  Tensor memory_;
  size_t used_ = 0;
};

}  // namespace tandem
