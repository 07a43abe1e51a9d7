#pragma once
// The update of one step: the decision (norm, clip, skip, lr, t), made once, then Adam block by block, on the
// host or launched on the device, each followed by the publication of the block's next version.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "core/device/workers.h"
#include "offload/grad_stream.h"
#include "offload/optimizer_states.h"
#include "offload/setup.h"
#include "offload/slots.h"
#include "offload/update_ring.h"

namespace tandem {

/// What has been applied so far.
struct Progress {
  int64_t updates = 0;  ///< Adam's t and the schedule's clock
  int64_t skipped_in_a_row =
      0;                ///< for a gradient that is not finite; a window without trained tokens is none
  int64_t skipped = 0;  ///< of the whole run
};

/// What a step turned out to be and what was done with it.
struct Decision {
  int64_t step = 0;      ///< from 0
  double loss = 0;       ///< mean over the window's trained tokens
  int64_t tokens = 0;    ///< trained tokens
  double grad_norm = 0;  ///< before clipping, unscaled
  double clip_coef = 1;
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;
  int64_t updates = 0;    ///< applied after this step
  float prediction = 0;   ///< what the step's version is published with
  AdamScalars scalars{};  ///< of this update; unset when skipped
};

/// Where a step's numbers land on the host.
struct LandedScalars {
  Tensor blocks;  // [2 * blocks] f64: (sum of squares, non-finite count) of each block
  Tensor losses;  // [micro-batches] f64
};

class Optimizer {
 public:
  /// Everything it works with; all outlive it.
  struct Parts {
    const TrainSetup& setup;
    const ParamTable& table;
    Device& device;
    Workers& workers;
    HostLane& lane;
    Stream& device_adam;
    StepPolicy& policy;
    Slots& slots;
    UpdateRing& ring;
    const OptimizerStates& states;
  };
  Optimizer(const Parts& parts, const Progress& start);

  /// Enqueues decision and update of a step. The numbers are there once numbers_landed has passed; tokens:
  /// trained tokens of the window. Returns the moment of the decision.
  Fence enqueue(int64_t step, const LandedScalars& numbers, const Fence& numbers_landed, int64_t tokens,
                std::vector<Landed> landed);
  /// The decision about a step whose fence the caller has waited for.
  [[nodiscard]] Decision decision(int64_t step) const;
  /// After all that has been decided.
  [[nodiscard]] Progress progress() const;
  /// Seconds that host Adam has been busy so far, and parameters that it has updated.
  struct Work {
    double seconds = 0;
    int64_t parameters = 0;
  };
  [[nodiscard]] Work work() const;

 private:
  [[nodiscard]] bool on_host(BlockId block) const;
  [[nodiscard]] std::vector<Tensor> read_by_decision(int64_t step, const LandedScalars& numbers) const;
  void decide(int64_t step, const LandedScalars& numbers, int64_t tokens);
  void refuse_nonfinite(const Decision& decision, BlockId first_bad) const;
  [[nodiscard]] std::string first_bad_tensor(BlockId block, int64_t step) const;
  void enqueue_host(BlockId block, int64_t step, const Fence& landed);
  void enqueue_device(BlockId block, int64_t step, const Fence& landed);
  void update_on_host(BlockId block, int64_t step, Tensor slot);
  void update_elements(const Decision& decision, BlockId block, Tensor slot);
  void update_on_device(BlockId block, int64_t step, Tensor slot, const Fence& landed);
  [[nodiscard]] Decay decay_of(bool decays) const;

  const Parts parts_;
  mutable std::mutex mutex_;
  Progress progress_;
  std::map<int64_t, Decision> decisions_;  ///< the last few
  Work work_;
};

}  // namespace tandem
