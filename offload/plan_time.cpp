#include "offload/plan_time.h"

#include <algorithm>
#include <functional>

#include "offload/fit.h"
#include "offload/memory_plan.h"
#include "offload/step_recording.h"

namespace tandem {

namespace {

Replay replay_of(const TrainSetup& setup, const ParamTable& table, const HardwareProfile& hardware) {
  return replay(record_step(setup, table), hardware, setup.dtype);
}

TrainSetup gpu_only(TrainSetup setup) {
  setup.placement.assign(setup.placement.size(), Placement::device);
  setup.policy.schedule = Schedule::synchronous;
  setup.prediction = 0;
  setup.window = 0;
  if (setup.keep == Keep::input_offloaded) setup.keep = Keep::input;
  return setup;
}

double bytes_of(const TrainSetup& setup, const ParamTable& table) {
  const MemoryPlan plan = plan_memory(setup, table);
  return static_cast<double>(plan.device_bytes() + plan.host_bytes());
}

double tokens_of(const TrainSetup& setup) { return static_cast<double>(setup.tokens_per_step()); }

/// Seconds per parameter and what they are in tokens, as the header says.
std::map<std::string, double> hidden_from(const TrainSetup& setup, const ParamTable& table,
                                          const Replay& alone, double adam_bytes,
                                          const HardwareProfile& hardware) {
  const auto parameters = static_cast<double>(table.trained_count());
  const double busy_s = (alone.step_ms - alone.idle_ms()) * 1e-3,
               trains = tokens_of(setup) / busy_s;  // tokens per second
  const double element = static_cast<double>(size_of(setup.dtype)), wire = parameters * element;
  const double d = trains * (adam_bytes + 2 * wire) / (hardware.dram_gb_s * 1e9),
               g = trains * wire / (hardware.d2h_gb_s * 1e9), h = trains * wire / (hardware.h2d_gb_s * 1e9),
               o = trains * parameters * (24 + 2 * element) / (hardware.device_gb_s * 1e9);
  const double a = setup.keep == Keep::all ? 1.0 / 3 : 1.0 / 4;
  const double streams = setup.window > 0 ? h / a : 0;
  return {{"synchronous", std::max({0.0, (d - 1.02 * o) / 0.02, streams})},
          {"exact", std::max(setup.decides_nothing() ? d : std::max(d, h) / a, streams)},
          {"delayed", std::max({d, g / (1 - a), h / (1 - a), streams})}};
}

/// What the update of the setup's host blocks would move through the host's memory were all of them there.
double adam_bytes(const TrainSetup& setup, const ParamTable& table) {
  const double element = static_cast<double>(size_of(setup.dtype));
  const double states = static_cast<double>(plane_bytes(setup.states, StatePlane::master, 1 << 20) +
                                            2 * plane_bytes(setup.states, StatePlane::moment1, 1 << 20) +
                                            2 * plane_bytes(setup.states, StatePlane::scale1, 1 << 20)) /
                        (1 << 20);
  const double upper = static_cast<double>(bytes_beside(setup.states));
  return static_cast<double>(table.trained_count()) * (2 * states + upper + 2 * element);
}

}  // namespace

TimeReport report_time(const Machine& machine, const TrainSetup& setup, const ParamTable& table,
                       const HardwareProfile& hardware) {
  TimeReport report;
  report.step = replay_of(setup, table, hardware);
  report.tokens_per_s = tokens_of(setup) / report.step.step_ms * 1e3;
  const Replay alone = replay_of(gpu_only(setup), table, hardware);
  report.gpu_only_ms = alone.step_ms;
  report.hidden_from_tokens = hidden_from(setup, table, alone, adam_bytes(setup, table), hardware);
  const double own_bytes = bytes_of(setup, table);
  for (const Change& change : changes(machine, setup, table)) {
    const Replay changed = replay_of(change.setup, table, hardware);
    const auto saved = static_cast<int64_t>(own_bytes - bytes_of(change.setup, table));
    report.knobs.push_back(
        {change.key, change.value, changed.step_ms, tokens_of(change.setup) / changed.step_ms * 1e3, saved});
  }
  std::ranges::stable_sort(report.knobs, std::greater{}, &KnobEffect::tokens_per_s);
  return report;
}

}  // namespace tandem
