#pragma once
// Does it fit? The plan against the limits that really hold, before anything is allocated.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "offload/assembly.h"
#include "offload/memory_plan.h"

namespace tandem {

/// What the process holds besides the plan.
struct FixedBytes {
  size_t program = 0;  ///< resident by now: the program itself, its libraries, what the checks have read
  size_t working = 0;  ///< still to come: the kernels' working memory, and staging while planes are moved
  [[nodiscard]] size_t total() const { return program + working; }
};
FixedBytes fixed_bytes(const Machine& machine, const TrainSetup& setup, const ParamTable& table);

/// Why the host can't give so much; empty if it can. host: its own memory, device: memory of the device,
/// which the host device takes from the host, each byte mapped twice.
std::string host_shortfall(const Machine& machine, size_t host, size_t device);

/// Bytes of its own memory that the host can give beside so many of the device.
size_t host_room(const Machine& machine, size_t device);

/// The first knob that makes the setup fit, as a config would say it; of knobs that do so only together, all;
/// then a higher device.memory_limit. Nothing if none of this helps.
std::optional<std::string> first_knob(const Machine& machine, const TrainSetup& setup,
                                      const ParamTable& table);

/// A setup with one knob turned.
struct Change {
  std::string key, value;  ///< as a config would say them
  TrainSetup setup;
};
/// Every knob that isn't turned yet, those that save memory and those that save time; whether they fit is not
/// asked.
std::vector<Change> changes(const Machine& machine, const TrainSetup& setup, const ParamTable& table);

/// Error(does_not_fit) with tier, need, limit and, as its hint, the first knob that makes it fit.
void check_fits(const Config& config, const Machine& machine, const TrainSetup& setup,
                const ParamTable& table);

}  // namespace tandem
