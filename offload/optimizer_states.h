#pragma once
// Masters and moments of every block, and the slots, where the placement says.
#include <vector>

#include "core/device/device.h"
#include "cpu_adam/adam.h"
#include "offload/setup.h"

namespace tandem {

/// One block's planes in host or device memory, each [trained elements] but for the scales.
struct BlockStates {
  Tensor master;                           // fp32
  Tensor exp_avg, exp_avg_sq;              // fp32, bf16, or u8 for the codes of int8
  Tensor exp_avg_scale, exp_avg_sq_scale;  // [trained / kStateGroup] bf16 with int8, else empty
  /// Those that are not empty.
  [[nodiscard]] std::vector<Tensor> planes() const;
};

/// The bytes that hold n elements of a block's states from `first` on, a multiple of kStateGroup; on the
/// host.
AdamStates states_of(const BlockStates& block, StateFormat format, int64_t first, int64_t n);

class OptimizerStates {
 public:
  /// Allocates what plan_memory() says under "master", "exp_avg", "exp_avg_sq", "slots" (host) and
  /// "optimizer", "slots" (device). Moments on the host start at zero.
  OptimizerStates(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host);
  [[nodiscard]] const BlockStates& block(BlockId id) const { return blocks_.at(static_cast<size_t>(id)); }
  /// slots()[block]: memory of its slots, each [trained elements] of the training dtype.
  [[nodiscard]] const std::vector<std::vector<Tensor>>& slots() const { return slots_; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<Pin> pins_;
  std::vector<BlockStates> blocks_;
  std::vector<std::vector<Tensor>> slots_;
};

}  // namespace tandem
