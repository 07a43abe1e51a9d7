#pragma once
// The trainer's step run without its arithmetic, on the null device: what it allocates and what it enqueues.
#include <cstdint>
#include <vector>

#include "gpu/null/recording.h"
#include "offload/memory_plan.h"
#include "offload/setup.h"

namespace tandem {

struct StepRecording {
  /// Scope -> the most bytes at once, from the start over every kind of step. host: the pinned included.
  ScopeBytes device, pinned, host;
  std::vector<gpu::RecordedStream> streams;
  /// One step of the schedule's final lag, in the order in which it was enqueued; empty if only digested.
  std::vector<gpu::RecordedOperation> step;
  uint64_t digest = 0;  ///< of that step
  int64_t steps = 0;    ///< that were run, until the last two were the same
};

/// Runs the steps of a run's beginning, with a warm-up of at most 2 steps, until two consecutive ones of the
/// schedule's final lag are the same. Takes about a microsecond for each operation of them, and memory for
/// tokens, rotary tables and what is listed, whatever the model's size. Error(does_not_fit) without address
/// space for all of it (ulimit -v).
StepRecording record_step(TrainSetup setup, const ParamTable& table,
                          gpu::Operations kept = gpu::Operations::listed);

}  // namespace tandem
