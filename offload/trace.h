#pragma once
// trace.json: some steps of a run for Perfetto (ui.perfetto.dev) or chrome://tracing.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device/trace.h"
#include "core/model/params.h"
#include "offload/trainer.h"

namespace tandem {

/// A step's time on the compute stream, as metrics.jsonl's step_ms has it.
struct TracedStep {
  int64_t step = 0;  ///< from 0
  int lag = 0;
  bool skipped = false;
  int64_t from_ns = 0, to_ns = 0;
};

/// The text of trace.json, Chrome's Trace Event Format. Everything that ends after the first step begins:
///
/// - a track "steps" with each step's time ("step 6");
/// - a track for the main thread and for every stream and lane, with a complete event for every piece of its
///   time. Work is named "RANGE: OPERATION"; its `args` have `op` (a number), `queued_us` (when it was
///   enqueued), `by` (the op that enqueued it, where that was a task), `bytes` (of copies), `block`. Time
///   without work is "wait" (args: `for`, what it waited for, in words; `awaited`, the last op before that;
///   waits that took no time are there too) or "idle" (args: `why`); `idle_us` says what it counts as. On the
///   compute stream the sum of a cause within a step is metrics' exposed_ms of that name (`compute` counts as
///   `other`);
/// - an arrow from an operation to the end of the wait for it, where something did wait.
///
/// Times are microseconds from the first event.
std::string trace_json(const Trace& trace, std::span<const TracedStep> steps, const ParamTable& table);

/// Decides when a run's device keeps a trace. The main thread's.
class StepTracer {
 public:
  /// Traces steps begin .. end - 1, from 0. device and table must outlive it.
  StepTracer(Device& device, const ParamTable& table, int64_t begin, int64_t end);
  /// To be called before anything of this step is enqueued, right after what was enqueued of the one before.
  void next(int64_t step);
  void reported(const StepReport& report);
  /// The traced steps and the one after them are known: the update of the last one has run by then.
  [[nodiscard]] bool complete() const { return complete_; }
  /// Steps known so far, numbered from 1 and in words ("steps 5 to 7"); empty if there are none.
  [[nodiscard]] std::string steps() const;
  /// Ends the trace; its text. Once, and with some steps.
  [[nodiscard]] std::string finish();

 private:
  Device& device_;
  const ParamTable& table_;
  const int64_t begin_, end_;
  bool running_ = false, complete_ = false;
  std::vector<TracedStep> steps_;
};

}  // namespace tandem
