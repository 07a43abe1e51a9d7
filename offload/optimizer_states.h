#pragma once
// Masters and moments of every block, and the slots, where the placement says.
#include <vector>

#include "core/device/device.h"
#include "offload/setup.h"

namespace tandem {

/// One block's fp32 planes, each [trained elements], in host or device memory.
struct BlockStates {
  Tensor master, exp_avg, exp_avg_sq;
};

class OptimizerStates {
 public:
  /// Allocates what plan_memory() says under "master", "exp_avg", "exp_avg_sq", "slots" (host) and
  /// "optimizer", "slots" (device).
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
