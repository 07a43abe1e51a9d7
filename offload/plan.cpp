#include "offload/plan.h"

#include <algorithm>

#include "gpu/backend.h"
#include "gpu/cuda_probe.h"
#include "offload/checkpoint.h"
#include "offload/fit.h"
#include "offload/progress.h"
#include "offload/step_recording.h"

namespace tandem {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 26;  // of a step: its recording holds 28 bytes of each
constexpr const char* kFreeSpace = "free space, or an output_dir on another disk";

PlanTier tier(std::string name, ScopeBytes scopes, size_t limit, std::string note) {
  PlanTier tier{std::move(name), 0, limit, std::move(scopes), std::move(note)};
  for (const auto& [scope, bytes] : tier.scopes) tier.need += bytes;
  return tier;
}

/// The key that a tier's limit depends on; none for the host.
std::string key_of(const PlanTier& tier) {
  if (tier.name == "disk") return "output_dir";
  return tier.name == "device" ? "device.memory_limit" : "";
}

size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

/// The host's memory and the pinned part of it, beside the device's where that is the host's too.
void add_host(MemoryReport& report, const StepRecording& recorded, const Machine& machine,
              const TrainSetup& setup, const ParamTable& table) {
  const size_t device = report.tiers.front().need, room = host_room(machine, device);
  // Staging is among the recorded scopes.
  const size_t working = fixed_bytes(machine, setup, table).working - staging_bytes(setup, table);
  const size_t limit = room == SIZE_MAX ? SIZE_MAX : less(room, working);
  const bool group = machine.limits.cgroup_free_bytes == machine.limits.resident_bytes();
  std::string note = group ? "what the control group leaves" : "what is free";
  if (working > 0) note += fmt::format(" less {} for kernels and saves", byte_text(working));
  if (machine.device_shares_host()) note += " less the device, which is RAM too";
  report.tiers.push_back(tier("pinned", recorded.pinned, limit, "a part of host"));
  report.tiers.push_back(tier("host", recorded.host, limit, std::move(note)));
}

void add_disk(MemoryReport& report, const Config& config, const TrainSetup& setup, const ParamTable& table,
              uint64_t disk_free) {
  const uint64_t all = checkpoint_bytes(table, setup.dtype,
                                        largest_save(setup, table, config.checkpoint.states)),
                 weights = checkpoint_bytes(table, setup.dtype, {.states = false});
  ScopeBytes scopes{{"weights", weights}};
  if (all > weights) scopes["optimizer"] = all - weights;
  const int64_t most = config.checkpoint.keep + (config.checkpoint.keep_best ? 1 : 0) + 1;
  report.tiers.push_back(tier("disk", std::move(scopes), disk_free,
                              fmt::format("one checkpoint; up to {} at a time need {}", most,
                                          byte_text(static_cast<uint64_t>(most) * all))));
}

}  // namespace

MemoryReport report_memory(const Config& config, const Machine& machine, const TrainSetup& setup,
                           const ParamTable& table, uint64_t disk_free) {
  CHECK(setup.micro_batches <= kMostTokens / setup.tokens_per_micro_batch(), Status::usage,
        fmt::format("a step of {} x {} sequences of {} tokens can't be planned: {} tokens are the most",
                    setup.micro_batches, setup.micro_batch, setup.length, kMostTokens),
        config.where("train_batch_size"), "a smaller batch, or a shorter data.sequence_length");
  const StepRecording recorded = record_step(setup, table, gpu::Operations::digested);
  MemoryReport report;
  report.tiers.push_back(
      tier("device", recorded.device, machine.device_limit,
           config.device.memory_limit ? "device.memory_limit" : "free less device.reserve"));
  add_host(report, recorded, machine, setup, table);
  add_disk(report, config, setup, table, disk_free);
  for (const PlanTier& tier : report.tiers) {
    if (tier.fits() || tier.name == "pinned") continue;  // a part of host
    if (report.lack.empty()) report.where = key_of(tier);
    report.lack += fmt::format("{}the {} needs {} where {} may be used", report.lack.empty() ? "" : "; ",
                               tier.name, byte_text(tier.need), byte_text(tier.limit));
  }
  if (report.fits()) return report;
  const PlanTier& disk = report.tiers.back();
  if (disk.fits())
    report.first_knob = first_knob(machine, setup, table);
  else if (report.where == key_of(disk))  // nothing else lacks
    report.first_knob = kFreeSpace;
  return report;
}

Machine find_planned_machine(const Config& config) {
  const std::string& kind = config.device.kind;
  const std::string why = kind == "auto" ? "" : gpu::why_absent(kind);
  if (why.empty()) return find_machine(config.device, config.where("device.kind"));
  size_t card_bytes = 0;
  const std::vector<gpu::CudaCard> cards = gpu::probe_cuda().cards;
  for (size_t i = 0; i < cards.size(); ++i)
    if (kind == fmt::format("cuda:{}", i) || (kind == "cuda" && i == 0)) card_bytes = cards[i].memory_bytes;
  CHECK(config.device.memory_limit || card_bytes > 0, Status::usage,
        fmt::format("device \"{}\" is not here ({}), so its memory is not known", kind, why),
        config.where("device.kind"), "device.memory_limit: what the card has, as in \"23GiB\"");
  Config::Device device = config.device;
  device.kind = "host";
  Machine machine = find_machine(device, config.where("device.kind"));
  machine.device_kind = kind;
  machine.device_why = fmt::format("planned for one; none can be used here: {}", why);
  machine.device_limit = config.device.memory_limit.value_or(less(card_bytes, config.device.reserve));
  return machine;
}

}  // namespace tandem
