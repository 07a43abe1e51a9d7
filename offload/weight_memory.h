#pragma once
// Memory of the 16-bit weights besides the slots, as plan_weights() says.
#include <vector>

#include "core/device/device.h"
#include "offload/memory_plan.h"
#include "offload/setup.h"

namespace tandem {

class WeightMemory {
 public:
  /// Scope "weights" on the device, and on the host where frozen elements stream.
  WeightMemory(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host);
  /// resident()[block]: [numel] on the device; empty where the block streams.
  [[nodiscard]] const std::vector<Tensor>& resident() const { return resident_; }
  /// What streams passes through it: the window's elements, flat, on the device.
  [[nodiscard]] Tensor window() const { return window_; }
  /// frozen()[block]: what is not trained of a block that streams, on the host, pinned; else empty.
  [[nodiscard]] const std::vector<Tensor>& frozen() const { return frozen_; }

 private:
  Buffer device_, host_;
  Pin pin_;
  std::vector<Tensor> resident_, frozen_;
  Tensor window_;
};

}  // namespace tandem
