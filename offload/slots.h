#pragma once
// The slots of the optimizer: each holds one block's gradient or its next weights, in the training dtype, and
// goes round:
//   weights(k) -> every read of it -> free -> landing(i) -> gradient(i) -> Adam -> weights(k+1), written over
//   the gradient.
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/base/tensor.h"
#include "core/device/device.h"
#include "core/model/params.h"

namespace tandem {

/// Thread-safe. Steps and versions: the gradient of step i becomes version i + 1.
class Slots {
 public:
  /// memory[block]: the slots of the block, each [trained elements] of the training dtype. readers[block]:
  /// how many release each version before its slot is free.
  Slots(std::vector<std::vector<Tensor>> memory, std::vector<int> readers);

  struct Landing {
    Tensor memory;
    std::vector<Fence> free;  ///< the last reads of what was there
    /// What is enqueued on the stream from now on may overwrite the memory.
    void wait_until_free(Stream& stream) const {
      for (const Fence& fence : free) stream.wait(fence);
    }
  };
  /// The slot that is free longest, for the gradient of the step. InternalError when there is none: then the
  /// schedule is wrong.
  [[nodiscard]] Landing land(BlockId block, int64_t step);
  /// The memory that holds the step's gradient, and later the weights made of it.
  [[nodiscard]] Tensor gradient(BlockId block, int64_t step) const;
  /// The memory that holds version k's weights (k = step + 1 of their gradient).
  [[nodiscard]] Tensor weights(BlockId block, int64_t version) const;
  /// One of the version's readers will not read it after the fence.
  void release(BlockId block, int64_t version, Fence last_read);
  /// Puts a version into a free slot, without a landing (initial weights, resume).
  [[nodiscard]] Tensor place(BlockId block, int64_t version) { return land(block, version - 1).memory; }

 private:
  struct Slot {
    Tensor memory;
    int readers = 0;    ///< that have not released it; 0 = free
    int64_t step = -1;  ///< of the gradient that is or was here
    std::vector<Fence> last_reads;
  };
  [[nodiscard]] const Slot& of_step(BlockId block, int64_t step) const;
  mutable std::mutex mutex_;
  std::vector<std::vector<Slot>> slots_;
  const std::vector<int> readers_;
};

}  // namespace tandem
