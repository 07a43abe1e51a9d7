#pragma once
// The trainer's step run without its arithmetic, on the null device: what it allocates and what it enqueues.
#include <vector>

#include "gpu/null/recording.h"
#include "offload/memory_plan.h"
#include "offload/setup.h"

namespace tandem {

/// The operations of one step, in the order in which they were enqueued. The places that they wait for count
/// from the start of the step: negative ones lie in steps before it.
using StepOperations = std::vector<gpu::RecordedOperation>;

/// True if the same streams do the same, with the same waits. Ranges are names for people, which may hold the
/// step's number, and are not compared.
bool same_operations(const StepOperations& a, const StepOperations& b);

struct StepRecording {
  /// Scope -> the most bytes at once, from the start over every kind of step. host: the pinned included.
  ScopeBytes device, pinned, host;
  std::vector<gpu::RecordedStream> streams;
  StepOperations step;  ///< of the schedule's final lag
  int64_t steps = 0;    ///< that were run, until the last two were the same
};

/// Runs the steps of a run's beginning, with a warm-up of at most 2 steps, until two consecutive ones of the
/// schedule's final lag are the same. Takes milliseconds to seconds, and memory for tokens and rotary tables
/// only, whatever the model's size. Error(does_not_fit) without address space for all of it (ulimit -v).
StepRecording record_step(TrainSetup setup, const ParamTable& table);

}  // namespace tandem
