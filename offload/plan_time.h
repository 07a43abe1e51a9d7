#pragma once
// What a step of the plan takes on a machine that a profile describes, and what would change it.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "offload/assembly.h"
#include "offload/replay.h"

namespace tandem {

/// One key with another value, all else as planned.
struct KnobEffect {
  std::string key, value;                ///< as a config would say them
  double step_ms = 0, tokens_per_s = 0;  ///< predicted with it
  int64_t bytes_saved = 0;               ///< of device and host together; negative: it takes more
};

struct TimeReport {
  Replay step;
  double tokens_per_s = 0;
  double gpu_only_ms = 0;  ///< the same step with the optimizer on the device, were there room
  [[nodiscard]] double ratio_to_gpu_only() const { return step.step_ms / gpu_only_ms; }
  /// By schedule: tokens of a step from which nothing of the offload shows (`synchronous`: at most 2 %), in
  /// closed form. Of costs per parameter in tokens, at the rate at which the device trains: host memory for
  /// the update and the copies (d), the link down and up (g, h); a: forward's share of the device's work.
  ///   delayed max(d, g/(1-a), h/(1-a)); exact, updating as gradients land, d; behind the decision max(d,
  ///   h)/a; synchronous (d - 1.02 o)/0.02, o the device's own update. Streamed weights: at least h/a.
  std::map<std::string, double> hidden_from_tokens;
  std::vector<KnobEffect> knobs;  ///< the fastest first
};

/// Records and replays the step, the same without offload, and one for each knob.
TimeReport report_time(const Machine& machine, const TrainSetup& setup, const ParamTable& table,
                       const HardwareProfile& hardware);

}  // namespace tandem
