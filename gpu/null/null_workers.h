#pragma once
#include "core/device/workers.h"

namespace tandem::gpu {

/// Compute threads that compute nothing: what is given to them is left out. Beside a null device, whose
/// memory nobody can touch: all arithmetic on host memory is the workers' (`adam`, `cast`, `reduce`), all
/// else that a lane's task does (decide, publish, launch) is not, and runs.
class NullWorkers final : public Workers {
 public:
  [[nodiscard]] int count() const override { return 1; }
  [[nodiscard]] std::string describe() const override { return "none: nothing is computed"; }
  void run(int64_t /*tasks*/, const std::function<void(int64_t task)>& /*task*/) override {}
};

}  // namespace tandem::gpu
