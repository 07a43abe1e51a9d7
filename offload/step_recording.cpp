#include "offload/step_recording.h"

#include <algorithm>
#include <array>
#include <utility>

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

}  // namespace

StepRecording record_step(TrainSetup setup, const ParamTable& table, gpu::Operations kept) {
  setup.policy.warmup_steps = std::min(setup.policy.warmup_steps, kWarmUp);
  const int64_t last_switch = setup.policy.schedule == Schedule::delayed ? setup.policy.warmup_steps : 0;
  const std::vector<int32_t> tokens(static_cast<size_t>(setup.tokens_per_step()), 0);

  gpu::Recording recording(kept);
  gpu::NullWorkers workers;
  gpu::NullMemory host(recording.memory(), kWritten);
  gpu::OpenOptions options;
  options.recording = &recording;
  const std::unique_ptr<Device> device = gpu::open("null", options);
  Trainer trainer(setup, table, *device, host, workers);

  StepRecording result;
  for (bool repeated = false; !repeated; ++result.steps) {
    ASSERT(result.steps < kMost, "no two of {} steps were the same", kMost);
    recording.begin_step();
    trainer.step({tokens, tokens});
    const uint64_t before = std::exchange(result.digest, recording.digest());
    repeated = result.steps > last_switch && result.digest == before;
  }
  result.step = recording.operations();
  const gpu::ReservedMemory& memory = recording.memory();
  result.device = peaks(memory.device());
  result.pinned = peaks(memory.pinned());
  result.host = peaks(memory.host());
  result.streams = recording.streams();
  return result;
}

}  // namespace tandem
