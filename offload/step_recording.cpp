#include "offload/step_recording.h"

#include <algorithm>
#include <array>

#include "gpu/backend.h"
#include "gpu/null/null_workers.h"
#include "offload/trainer.h"

namespace tandem {

namespace {

constexpr int64_t kWarmUp = 2;  // steps at lag 0 show all that more of them would
constexpr int64_t kMost = 16;   // steps until two must have been the same

/// What the main thread writes by itself: tokens, rotary angles.
constexpr std::array<std::string_view, 2> kWritten{"batches", "tables"};

ScopeBytes peaks(const MemoryCounters& counters) {
  ScopeBytes bytes;
  for (const auto& [scope, held] : counters.scopes())
    if (!scope.empty()) bytes[scope] = held.peak;
  return bytes;
}

/// Places counted from where the streams were at the start of the step.
void count_from(const std::vector<gpu::RecordedStream>& start, StepOperations& step) {
  for (gpu::RecordedOperation& operation : step)
    for (gpu::RecordedPlace& place : operation.waits) place.operations -= start[place.stream].operations;
}

bool same(const gpu::RecordedOperation& a, const gpu::RecordedOperation& b) {
  return a.stream == b.stream && a.name == b.name && a.read_bytes == b.read_bytes &&
         a.written_bytes == b.written_bytes && a.flops == b.flops && a.waits == b.waits;
}

}  // namespace

bool same_operations(const StepOperations& a, const StepOperations& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

StepRecording record_step(TrainSetup setup, const ParamTable& table) {
  setup.policy.warmup_steps = std::min(setup.policy.warmup_steps, kWarmUp);
  const int64_t last_switch = setup.policy.schedule == Schedule::delayed ? setup.policy.warmup_steps : 0;
  const std::vector<int32_t> tokens(static_cast<size_t>(setup.micro_batches * setup.tokens_per_micro_batch()),
                                    0);

  gpu::Recording recording;
  gpu::NullWorkers workers;
  gpu::NullMemory host(recording.memory(), kWritten);
  gpu::OpenOptions options;
  options.recording = &recording;
  const std::unique_ptr<Device> device = gpu::open("null", options);
  Trainer trainer(setup, table, *device, host, workers);

  StepRecording result;
  for (;; ++result.steps) {
    ASSERT(result.steps < kMost, "no two of {} steps were the same", kMost);
    const std::vector<gpu::RecordedStream> start = recording.streams();
    (void)recording.take();
    trainer.step({tokens, tokens});
    StepOperations step = recording.take();
    count_from(start, step);
    const bool repeated = result.steps > last_switch && same_operations(step, result.step);
    result.step = std::move(step);
    if (repeated) break;
  }
  ++result.steps;
  const gpu::ReservedMemory& memory = recording.memory();
  result.device = peaks(memory.device());
  result.pinned = peaks(memory.pinned());
  result.host = peaks(memory.host());
  result.streams = recording.streams();
  return result;
}

}  // namespace tandem
