#include "offload/fit.h"

#include <unistd.h>

#include <fstream>
#include <functional>
#include <vector>

#include "gpu/host/host_ops.h"
#include "offload/progress.h"

namespace tandem {

namespace {

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// Why a setup doesn't fit; empty when it does.
std::string shortfall(const Machine& machine, const TrainSetup& setup, const ParamTable& table) {
  const MemoryPlan plan = plan_memory(setup, table);
  if (plan.device_bytes() > machine.device_limit)
    return fmt::format("the device needs {} where {} may be used", byte_text(plan.device_bytes()),
                       byte_text(machine.device_limit));
  // The host device's memory is the host's too.
  const size_t shared = machine.device_kind == "host" ? plan.device_bytes() : 0;
  const size_t need = plan.host_bytes() + shared + fixed_bytes(machine, setup);
  if (need > machine.host_limit)
    return fmt::format("the host needs {} where {} may be used", byte_text(need),
                       byte_text(machine.host_limit));
  return {};
}

struct Knob {
  const char* name;
  std::function<bool(TrainSetup&)> turn;  ///< false: it is turned already
};

/// In the order in which they are offered: what costs least first.
std::vector<Knob> knobs(const ParamTable& table) {
  return {
      {"activation_checkpointing.policy: \"recompute\"",
       [](TrainSetup& s) { return std::exchange(s.keep, Keep::input) != Keep::input; }},
      {"zero_optimization.offload_optimizer.device: \"cpu\"",
       [&table](TrainSetup& s) {
         const std::vector<Placement> host(static_cast<size_t>(table.block_count()), Placement::host);
         return std::exchange(s.placement, host) != host;
       }},
      {"train.order: \"micro_batch_major\"",
       [](TrainSetup& s) {
         return s.micro_batches > 1 && std::exchange(s.order, Order::micro_batch_major) == Order::layer_major;
       }},
      {"train_micro_batch_size_per_gpu: 1 (with more gradient_accumulation_steps)",
       [](TrainSetup& s) {
         if (s.micro_batch == 1) return false;
         s.micro_batches *= s.micro_batch;
         s.micro_batch = 1;
         return true;
       }},
      {"zero_optimization.offload_optimizer.schedule: \"synchronous\"",
       [](TrainSetup& s) {
         return std::exchange(s.policy.schedule, Schedule::synchronous) == Schedule::delayed;
       }},
  };
}

}  // namespace

size_t fixed_bytes(const Machine& machine, const TrainSetup& setup) {
  const size_t scratch =
      gpu::host_scratch_bytes(machine.workers->count(), setup.dtype, setup.length, setup.arch.head_dim);
  return resident_bytes() + (machine.device_kind == "host" ? scratch : 0);
}

void check_fits(const Config& config, const Machine& machine, const TrainSetup& setup,
                const ParamTable& table) {
  const std::string lacks = shortfall(machine, setup, table);
  if (lacks.empty()) return;
  std::string hint = "a smaller model, or a machine with more memory";
  for (const Knob& knob : knobs(table)) {
    TrainSetup turned = setup;
    if (knob.turn(turned) && shortfall(machine, turned, table).empty()) {
      hint = knob.name;
      break;
    }
  }
  throw Error(Status::does_not_fit, "the run does not fit: " + lacks, config.where("device.memory_limit"),
              hint);
}

}  // namespace tandem
