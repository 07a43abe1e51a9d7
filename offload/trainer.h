#pragma once
// The training step: enter, forward, loss, backward, close, update. Owns the streams, the memory and the
// versions of one model.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/device/workers.h"
#include "core/model/model.h"
#include "offload/memory_plan.h"
#include "offload/optimizer.h"
#include "offload/planes.h"
#include "offload/setup.h"

namespace tandem {

/// The tokens of one step, on the host: [micro-batches, B, T] each.
struct StepTokens {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;  ///< -100 = not trained
};

/// What is known about a step once its update has been decided.
struct StepReport {
  Decision decision;
  /// Optimizer::sums() of the step before. This step's own update may still be running, so it waits for the
  /// next report.
  std::optional<AdamSums> sums_before;
  int lag = 0;
  StreamTimes times;  ///< of the compute stream, from the end of the previous step's backward to the end of
                      ///< this one's
  double adam_seconds = 0;  ///< busy time of host Adam since the previous report
  int64_t adam_parameters = 0;
  size_t d2h_bytes = 0, h2d_bytes = 0;
};

/// The state of training between two steps, besides the planes.
struct TrainState {
  PolicyState policy;
  Progress progress;
};

/// Not thread-safe: one main thread steps, reports and reads. Any failure poisons the device; every later
/// call throws it.
class Trainer {
 public:
  Trainer(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
          Workers& workers, const TrainState& start, PlaneSource& planes);
  /// Before step 0 with weights and states as memory comes: for a device that computes nothing. What loading
  /// would allocate is allocated and given back.
  Trainer(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
          Workers& workers);
  ~Trainer();

  /// The next step's number, from 0.
  [[nodiscard]] int64_t next_step() const;
  /// Enqueues one step; blocks only for decisions and uploads that it depends on.
  void step(const StepTokens& batch);
  /// The report of the oldest step that has none yet, if its decision is known without waiting for more than
  /// step() did.
  [[nodiscard]] std::optional<StepReport> take_report();
  /// Waits until every step that was enqueued has been applied; take_report() then gives all that is left.
  void quiesce();

  /// Waits until it is known which weights the next step's forward reads; returns their version.
  int64_t begin_evaluation();
  /// The sum of the trained tokens' losses with those weights, over [n, T] tokens, n at most B. Between
  /// steps; changes nothing that training computes.
  [[nodiscard]] double evaluate(const StepTokens& sequences);
  /// Replaces the device's weights by the rounded masters. After quiesce(), and no step may follow.
  void finalize();

  /// After quiesce(): what a checkpoint holds.
  [[nodiscard]] TrainState state() const;
  [[nodiscard]] bool has_plane(Plane plane) const;
  /// How a block's states are held.
  [[nodiscard]] StateFormat format(BlockId block) const;
  /// out: elements of the block from `first` on (of scales: of the plane), on the host, in the dtype that the
  /// plane has. Frozen elements are among the weights only; no read crosses the line between them and the
  /// trained ones. With the staging of begin_reading().
  void begin_reading();
  void read_plane(Plane plane, BlockId block, Tensor out, int64_t first = 0);
  void end_reading();

  /// The highest number of bytes that the activations' arena has held at once.
  [[nodiscard]] size_t arena_peak() const;

 private:
  class Impl;
  Device& device_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
