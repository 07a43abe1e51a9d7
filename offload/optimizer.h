#pragma once
// The update of one step: the decision (norm, clip, skip, lr, t), made once, and Adam block by block, on the
// host or launched on the device, each followed by the publication of the block's next version.
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "core/device/workers.h"
#include "cpu_adam/adam_sums.h"
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
  Tensor slices;  // [2 * slices] f64: (sum of squares, non-finite count) of each slice of the gradients
  Tensor losses;  // [micro-batches] f64
};

/// The trained blocks, first the one that is updated first of those that could be. In `exact` the next
/// forward waits for them in its order; as gradients land in the order of backward, that is also: the newest
/// landed first. In the others backward's order.
std::vector<BlockId> update_order(Schedule schedule, const ParamTable& table);

/// Its calls but decision(), progress(), sums() and work() are the main thread's.
class Optimizer {
 public:
  /// The lanes that it needs, which take turns: the first for decisions. Where updates begin before all
  /// gradients have landed one for each block follows, so that whichever has landed can go ahead of others.
  static std::vector<std::string> lane_names(const TrainSetup& setup, const ParamTable& table);

  /// Everything it works with; all outlive it.
  struct Parts {
    const TrainSetup& setup;
    const ParamTable& table;
    Device& device;
    Workers& workers;
    const std::vector<std::unique_ptr<HostLane>>& lanes;
    Stream& device_adam;
    StepPolicy& policy;
    Slots& slots;
    UpdateRing& ring;
    const OptimizerStates& states;
  };
  Optimizer(const Parts& parts, const Progress& start);

  /// A step begins; tokens: trained tokens of its window. Where updates begin before the decision, all steps
  /// before it have been decided.
  void begin(int64_t step, int64_t tokens);
  /// The block's gradient of the step is in its slot once the fence has passed.
  void landed(BlockId block, const Fence& fence);
  /// All gradients have been announced; the step's numbers are there once numbers_landed has passed. What is
  /// left to enqueue of decision and updates is enqueued. Returns the moment of the decision.
  [[nodiscard]] Fence finish(const LandedScalars& numbers, const Fence& numbers_landed);
  /// The decision about a step whose fence the caller has waited for.
  [[nodiscard]] Decision decision(int64_t step) const;
  /// Of the step's update, over the blocks on the host in their order: nothing of it depends on timing. None
  /// where nothing was updated there: a skipped step, none before this run, no block on the host. To be asked
  /// once the decision of a later step has been waited for: its forward, or its turn on the lane, comes after
  /// the update.
  [[nodiscard]] std::optional<AdamSums> sums(int64_t step) const;
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
  [[nodiscard]] std::vector<Tensor> read_by_decision(const LandedScalars& numbers) const;
  [[nodiscard]] Decision settle(int64_t step, int64_t tokens, bool finite, double grad_norm) const;
  void decide(int64_t step, const LandedScalars& numbers, int64_t tokens);
  /// Of a block's gradient: the sum of squares, by the tree over its slices, and whether it is finite.
  [[nodiscard]] std::pair<double, bool> sum_up(BlockId block, const LandedScalars& numbers) const;
  void refuse_nonfinite(const Decision& decision, BlockId first_bad) const;
  [[nodiscard]] std::string first_bad_tensor(BlockId block, int64_t step) const;
  void enqueue(BlockId block, const Fence& landed);
  void enqueue_host(HostLane& lane, BlockId block, int64_t step);
  void enqueue_device(HostLane& lane, BlockId block, int64_t step);
  void update_on_host(BlockId block, int64_t step, const BlockStates& states, Tensor slot);
  [[nodiscard]] AdamSums update_elements(const Decision& decision, BlockId block, const BlockStates& states,
                                         Tensor slot);
  void update_on_device(BlockId block, int64_t step, Tensor slot);
  [[nodiscard]] Decay decay_of(bool decays) const;

  const Parts parts_;
  const std::vector<BlockId> order_;
  const std::vector<int64_t> slice_places_;
  std::vector<HostLane*> lane_of_;  ///< of each block
  int64_t step_ = 0, tokens_ = 0;   ///< of the step that began last
  std::map<BlockId, Fence> landed_;

  mutable std::mutex mutex_;
  Progress progress_;
  std::map<int64_t, Decision> decisions_;                ///< the last few
  std::map<int64_t, std::map<BlockId, AdamSums>> sums_;  ///< of the same steps
  Work work_;
};

}  // namespace tandem
