#pragma once
// What a run needs of each memory and of the disk, from the recording of its step, against what there is.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/assembly.h"
#include "offload/memory_plan.h"

namespace tandem {

/// One kind of memory, or the disk.
struct PlanTier {
  std::string name;         ///< "device", "pinned", "host" or "disk"
  size_t need = 0;          ///< bytes: the sum of the scopes, which is what the allocators' counters will say
  size_t limit = SIZE_MAX;  ///< bytes that may be used for it here; SIZE_MAX: not known
  ScopeBytes scopes;
  std::string note;  ///< what the limit is, or what else there is to say
  [[nodiscard]] bool fits() const { return need <= limit; }
};

struct MemoryReport {
  /// device; pinned, which is a part of host; host, while it is at most: while states are loaded or saved;
  /// disk: one checkpoint.
  std::vector<PlanTier> tiers;
  std::string lack;                       ///< all that is too small, in words; empty if the run fits
  std::string where;                      ///< the key that has to do with it; empty if there is no one key
  std::optional<std::string> first_knob;  ///< what would make it fit, if anything would
  [[nodiscard]] bool fits() const { return lack.empty(); }
};

/// A run fits here if and only if train would begin it. disk_free: bytes on the disk of the run folder.
/// Allocates nothing of what it counts. Error(usage) for a step of more than 2^26 tokens.
MemoryReport report_memory(const Config& config, const Machine& machine, const TrainSetup& setup,
                           const ParamTable& table, uint64_t disk_free);

/// The machine that the config's run would have. device.kind may name a card that isn't here; then its memory
/// is device.memory_limit, or what the driver says of a card that can't be used; Error(usage) where neither
/// is known.
Machine find_planned_machine(const Config& config);

}  // namespace tandem
