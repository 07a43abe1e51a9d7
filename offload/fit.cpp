#include "offload/fit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "core/io/safetensors.h"
#include "core/io/stored_order.h"
#include "gpu/host/host_ops.h"
#include "offload/choices.h"
#include "offload/progress.h"

namespace tandem {

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Address space, which only `ulimit -v` counts. Mapped and hardly touched: glibc's heap of a thread (64 MiB,
// 128 while it is aligned) and its stack; OpenBLAS's buffer of a thread that multiplies. Without room for the
// last OpenBLAS 0.3.21 tries again for ever.
constexpr size_t kThreadSpace = (128 + 8) * kMiB, kProductSpace = 128 * kMiB;
constexpr size_t kStreams = 10;        // at most: threads of the host device's streams and lane
constexpr size_t kDeviceMappings = 2;  // of each byte of the host device's memory

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// Bytes of device memory that are the host's.
size_t shared_bytes(const Machine& machine, size_t device) {
  return machine.device_shares_host() ? device : 0;
}

/// Address space of all but the host's own memory.
size_t other_space(const Machine& machine, size_t device) {
  const auto threads = static_cast<size_t>(machine.workers->count());
  return shared_bytes(machine, device) * kDeviceMappings + threads * (kThreadSpace + kProductSpace) +
         kStreams * kThreadSpace;
}

std::string lacks(const char* tier, size_t need, size_t limit, const char* limited_by) {
  return fmt::format("the {} needs {} where {} may be used{}", tier, byte_text(need), byte_text(limit),
                     limited_by);
}

/// Why a setup doesn't fit; empty when it does.
std::string shortfall(const Machine& machine, const TrainSetup& setup, const ParamTable& table) {
  const MemoryPlan plan = plan_memory(setup, table);
  if (plan.device_bytes() > machine.device_limit)
    return lacks("device", plan.device_bytes(), machine.device_limit, "");
  return host_shortfall(machine, plan.host_bytes() + fixed_bytes(machine, setup, table).working,
                        plan.device_bytes());
}

bool any_on(Placement place, const TrainSetup& setup) {
  return std::ranges::find(setup.placement, place) != setup.placement.end();
}

/// One change of a setup: what the config should say; nothing if that is so already.
using Knob = std::optional<std::string> (*)(TrainSetup&);

std::optional<std::string> recompute(TrainSetup& setup) {
  if (setup.keep != Keep::all) return {};
  setup.keep = Keep::input;
  return "activation_checkpointing.policy: \"recompute\"";
}

std::optional<std::string> recompute_offload(TrainSetup& setup) {
  if (std::exchange(setup.keep, Keep::input_offloaded) == Keep::input_offloaded) return {};
  return "activation_checkpointing.policy: \"recompute_offload\"";
}

std::optional<std::string> offload(TrainSetup& setup) {
  if (!any_on(Placement::device, setup)) return {};
  const bool none = !any_on(Placement::host, setup);
  setup.placement.assign(setup.placement.size(), Placement::host);
  return none ? "zero_optimization.offload_optimizer.device: \"cpu\""
              : "zero_optimization.offload_optimizer.ratio: 1";
}

std::optional<std::string> one_micro_batch_at_a_time(TrainSetup& setup) {
  if (setup.micro_batches == 1 || setup.order == Order::micro_batch_major) return {};
  setup.order = Order::micro_batch_major;
  return "train.order: \"micro_batch_major\"";
}

std::optional<std::string> smaller_micro_batch(TrainSetup& setup) {
  if (setup.micro_batch == 1) return {};
  setup.micro_batches *= std::exchange(setup.micro_batch, 1);
  return fmt::format("train_micro_batch_size_per_gpu: 1 with gradient_accumulation_steps: {}",
                     setup.micro_batches);
}

std::optional<std::string> stream_weights(TrainSetup& setup) {
  constexpr int kWindow = 3;
  if (setup.window > 0 || setup.placement.front() == Placement::device) return {};
  setup.window = kWindow;
  return "zero_optimization.offload_param.device: \"cpu\"";
}

std::optional<std::string> no_delay(TrainSetup& setup) {
  if (setup.policy.schedule != Schedule::delayed) return {};
  setup.policy.schedule = Schedule::exact;
  return "zero_optimization.offload_optimizer.schedule: \"exact\"";
}

std::optional<std::string> compact_moments(TrainSetup& setup) {
  if (std::exchange(setup.states.moments, MomentFormat::int8) == MomentFormat::int8) return {};
  if (!any_on(Placement::host, setup)) return {};
  return "zero_optimization.offload_optimizer.moment_format: \"int8\"";
}

std::optional<std::string> compact_masters(TrainSetup& setup) {
  if (std::exchange(setup.states.master, MasterFormat::ulp8) == MasterFormat::ulp8) return {};
  if (!any_on(Placement::host, setup) || !refusal(setup.states, setup.dtype).empty()) return {};
  return "zero_optimization.offload_optimizer.master_format: \"ulp8\"";
}

std::optional<std::string> delay(TrainSetup& setup) {
  if (setup.policy.schedule == Schedule::delayed || !any_on(Placement::host, setup)) return {};
  setup.policy.schedule = Schedule::delayed;
  return "zero_optimization.offload_optimizer.schedule: \"delayed\"";
}

std::optional<std::string> overlap(TrainSetup& setup) {
  if (setup.policy.schedule != Schedule::synchronous || !any_on(Placement::host, setup)) return {};
  setup.policy.schedule = Schedule::exact;
  return "zero_optimization.offload_optimizer.schedule: \"exact\"";
}

std::optional<std::string> keep_activations(TrainSetup& setup) {
  if (std::exchange(setup.keep, Keep::all) == Keep::all) return {};
  return "activation_checkpointing.policy: \"keep\"";
}

std::optional<std::string> resident_weights(TrainSetup& setup) {
  if (std::exchange(setup.window, 0) == 0) return {};
  return "zero_optimization.offload_param.device: \"none\"";
}

std::optional<std::string> larger_batch(TrainSetup& setup) {
  setup.micro_batches *= 2;
  return fmt::format("gradient_accumulation_steps: {}", setup.micro_batches);
}

/// What may save time and takes memory for it.
constexpr Knob kFaster[] = {overlap, delay, keep_activations, resident_weights, larger_batch};

/// In the order in which they are offered: what costs least first.
constexpr Knob kKnobs[] = {recompute,           offload,        recompute_offload, one_micro_batch_at_a_time,
                           smaller_micro_batch, stream_weights, no_delay,          compact_moments,
                           compact_masters};

/// With what the config leaves open settled again.
std::optional<std::string> turn(Knob knob, const Machine& machine, const ParamTable& table,
                                TrainSetup& setup) {
  std::optional<std::string> says = knob(setup);
  if (says) settle(machine, table, setup);
  return says;
}

/// The highest of some ratios with which the device takes over enough from the host.
std::optional<std::string> lower_ratio(const Machine& machine, TrainSetup setup, const ParamTable& table) {
  if (!any_on(Placement::host, setup)) return {};
  for (int percent = 95; percent >= 0; percent -= 5) {
    setup.placement = place_by_ratio(table, percent / 100.0);
    if (shortfall(machine, setup, table).empty())
      return fmt::format("zero_optimization.offload_optimizer.ratio: {}", percent / 100.0);
  }
  return {};
}

bool needs_less(const TrainSetup& a, const TrainSetup& b, const ParamTable& table) {
  const MemoryPlan one = plan_memory(a, table), other = plan_memory(b, table);
  return one.device_bytes() < other.device_bytes() ||
         one.device_bytes() + one.host_bytes() < other.device_bytes() + other.host_bytes();
}

/// All knobs that help, one after the other, until the setup fits.
std::optional<std::string> knobs_together(const Machine& machine, TrainSetup setup, const ParamTable& table) {
  std::vector<std::string> all;
  for (const Knob knob : kKnobs) {
    TrainSetup turned = setup;
    const std::optional<std::string> says = turn(knob, machine, table, turned);
    if (!says || !needs_less(turned, setup, table)) continue;
    setup = std::move(turned);
    const std::string_view key = std::string_view(*says).substr(0, says->find(':'));
    std::erase_if(all, [&](const std::string& earlier) { return earlier.starts_with(key); });
    all.push_back(*says);
    if (!shortfall(machine, setup, table).empty()) continue;
    std::string text;
    for (const std::string& one : all) text += (text.empty() ? "" : "; ") + one;
    return text;
  }
  return {};
}

}  // namespace

FixedBytes fixed_bytes(const Machine& machine, const TrainSetup& setup, const ParamTable& table) {
  const size_t scratch =
      gpu::host_scratch_bytes(machine.workers->count(), setup.dtype, setup.length, setup.arch.head_dim);
  const size_t saves =
      staging_bytes(setup, table) + StoredOrder::bytes(table, sizeof(float)) + kSafetensorsChunk;
  return {resident_bytes(), saves + (machine.device_shares_host() ? scratch : 0)};
}

size_t host_room(const Machine& machine, size_t device) {
  const auto rest = [](size_t of, size_t taken) { return of > taken ? of - taken : 0; };
  size_t room = machine.limits.resident_bytes();
  if (room != SIZE_MAX) room = rest(room, shared_bytes(machine, device));
  if (machine.limits.address_space_bytes)
    room = std::min(room, rest(*machine.limits.address_space_bytes, other_space(machine, device)));
  return room;
}

std::string host_shortfall(const Machine& machine, size_t host, size_t device) {
  const size_t shared = shared_bytes(machine, device);
  const size_t resident = machine.limits.resident_bytes();
  if (host + shared > resident) {
    const bool group = machine.limits.cgroup_free_bytes == resident;
    return lacks("host", host + shared, resident, group ? " (the control group's limit)" : "");
  }
  const size_t space = host + other_space(machine, device);
  if (machine.limits.address_space_bytes && space > *machine.limits.address_space_bytes)
    return lacks("process", space, *machine.limits.address_space_bytes, " as address space (ulimit -v)");
  return {};
}

std::optional<std::string> first_knob(const Machine& machine, const TrainSetup& setup,
                                      const ParamTable& table) {
  for (const Knob knob : kKnobs) {
    TrainSetup turned = setup;
    const std::optional<std::string> says = turn(knob, machine, table, turned);
    if (says && shortfall(machine, turned, table).empty()) return says;
  }
  if (auto ratio = lower_ratio(machine, setup, table)) return ratio;
  if (auto together = knobs_together(machine, setup, table)) return together;
  const MemoryPlan plan = plan_memory(setup, table);
  const size_t host = plan.host_bytes() + fixed_bytes(machine, setup, table).working;
  if (plan.device_bytes() > machine.device_limit &&
      host_shortfall(machine, host, plan.device_bytes()).empty())
    return fmt::format("device.memory_limit: \"{}MiB\" or more", plan.device_bytes() / kMiB + 1);
  return {};
}

std::vector<Change> changes(const Machine& machine, const TrainSetup& setup, const ParamTable& table) {
  std::vector<Change> changes;
  const auto add = [&](Knob knob) {
    TrainSetup turned = setup;
    const std::optional<std::string> says = knob(turned);
    if (!says) return;
    turned.open.activations = false;  // they stay as they are, whatever else changes
    if (turned.placement != setup.placement) turned.open.embedding = false;
    settle(machine, table, turned);
    const size_t colon = says->find(": ");
    changes.push_back({says->substr(0, colon), says->substr(colon + 2), std::move(turned)});
  };
  std::ranges::for_each(kFaster, add);
  std::ranges::for_each(kKnobs, add);
  return changes;
}

void check_fits(const Config& config, const Machine& machine, const TrainSetup& setup,
                const ParamTable& table) {
  const std::string lack = shortfall(machine, setup, table);
  if (lack.empty()) return;
  throw Error(Status::does_not_fit, "the run does not fit: " + lack, config.where("device.memory_limit"),
              first_knob(machine, setup, table)
                  .value_or("a smaller model, or higher limits (`tandem doctor` shows them)"));
}

}  // namespace tandem
