#include "offload/banner.h"

#include <algorithm>

#include "cpu_adam/host_memory.h"
#include "cpu_adam/numa_memory.h"
#include "offload/checkpoint.h"
#include "offload/choices.h"
#include "offload/fit.h"
#include "offload/progress.h"
#include "offload/version.h"

namespace tandem {

namespace {

std::string row(std::string_view name, std::string_view text) {
  return fmt::format("  {:<10} {}\n", name, text);
}

std::string scopes(const ScopeBytes& bytes) {
  std::vector<std::pair<std::string, size_t>> sorted(bytes.begin(), bytes.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [scope, size] : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", scope, byte_text(size));
  return text;
}

/// The NUMA nodes, and on which of them memory lies.
std::string numa_text(const Machine& machine) {
  const size_t nodes = machine.topology.nodes.size();
  std::string text = fmt::format("{} node{}", nodes, nodes == 1 ? "" : "s");
  if (!machine.topology.hwloc_found) text = "hwloc finds nothing here: taken to be one node";
  if (nodes > 1)
    text += machine.workers->nodes() > 1 ? "; masters and moments lie with the threads that update them"
                                         : "; threads aren't spread over them, memory lies where they run";
  text += fmt::format("; huge pages: {}", huge_page_policy());
  const LandingNode landing = landing_node(machine.pci_bus_id);
  if (landing.node) return text + fmt::format("; slots on node {}, {}", *landing.node, landing.why);
  return landing.why.empty() ? text : text + "; slots as masters: " + landing.why;
}

std::string schedule_text(const TrainSetup& setup, const ParamTable& table) {
  const std::string where = placement_text(setup, table);
  if (setup.policy.schedule == Schedule::synchronous) return "synchronous, lag 0; " + where;
  if (setup.policy.schedule == Schedule::exact)
    return fmt::format("exact, lag 0, updates begin {}; {}",
                       setup.updates_early() ? "as gradients land" : "when norm and flags are known", where);
  const std::string correction = setup.prediction > 0 ? fmt::format("predict x{}", setup.prediction) : "none";
  const double limit = setup.policy.staleness_limit;
  return fmt::format("delayed, lag 0 for {} steps, then 1{}; correction {}; {}", setup.policy.warmup_steps,
                     limit > 0 ? fmt::format(", 0 again if the loss rises by {} nats", limit) : "",
                     correction, where);
}

/// Where the weights are that the model computes with.
std::string weights_text(const TrainSetup& setup, const ParamTable& table) {
  if (setup.window == 0) return "on the device";
  const WeightPlan plan = plan_weights(setup, table);
  return fmt::format("on the host, fetched for every pass through a window of {} layer{} ({} on the device)",
                     plan.layer_slots, plan.layer_slots == 1 ? "" : "s",
                     byte_text(static_cast<size_t>(plan.device_elements()) * size_of(setup.dtype)));
}

std::string model_text(const ModelSource& model, const ParamTable& table) {
  const Arch& a = model.arch;
  return fmt::format(
      "{}, {} parameters in {} blocks: {} layers, hidden {}, heads {}/{}, vocab {}, {} head; {}",
      a.model_type, table.parameter_count(), table.block_count(), a.layers, a.hidden, a.heads, a.kv_heads,
      a.vocab, a.tied ? "tied" : "untied",
      model.folder ? "weights from " + model.folder->path() : "weights from train.seed");
}

std::string rate_text(const TrainSetup& setup, int64_t steps) {
  double peak = 0;
  int64_t at = 0;
  const int64_t stride = std::max<int64_t>(1, steps / 10000);
  for (int64_t n = 0; n < steps; n += stride)
    if (setup.lr(n) > peak) {
      peak = setup.lr(n);
      at = n;
    }
  return fmt::format("first {:.3g}, peak {:.3g} (update {}), last {:.3g}", setup.lr(0), peak, at + 1,
                     setup.lr(steps - 1));
}

/// "fp32 masters and moments", "ulp8 masters, int8 moments".
std::string states_text(const TrainSetup& setup, const ParamTable& table) {
  const StateFormat states = setup.states;
  const std::string_view master = row_of(states.master).name, moments = row_of(states.moments).name;
  if (master == moments) return fmt::format("{} masters and moments", master);
  return fmt::format(
      "{} masters, {} moments{}", master, moments,
      parameters_on(Placement::device, setup, table) > 0 ? " on the host, fp32 on the device" : "");
}

/// What fp16 scales its losses by; empty for the other dtypes.
std::string scale_text(const TrainSetup& setup) {
  if (setup.dtype != DType::f16) return {};
  const LossScaleConfig& scale = setup.policy.loss_scale;
  if (scale.fixed > 0) return fmt::format("; loss scale {}", scale.fixed);
  return fmt::format("; loss scale from 2^{}, dynamic", scale.initial_scale_power);
}

/// A name with its layer's number as '*': "model.layers.*.mlp.up_proj.weight".
std::string for_every_layer(const std::string& name) {
  const size_t begin = name.find_first_of("0123456789");
  if (begin == 0 || begin == name.npos || name[begin - 1] != '.') return name;
  const size_t end = name.find_first_not_of("0123456789", begin);
  return end != name.npos && name[end] == '.' ? name.substr(0, begin) + "*" + name.substr(end) : name;
}

/// The names of the parameters that are meant, the layers' numbers as one.
template <class Meant>
std::string names_text(const ParamTable& table, Meant meant) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : table.params()) {
    if (!meant(spec)) continue;
    const std::string name = for_every_layer(spec.name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : text;
}

std::string fixed_text(const Machine& machine, const TrainSetup& setup, const ParamTable& table) {
  const FixedBytes fixed = fixed_bytes(machine, setup, table);
  return fmt::format("fixed {}: program {}, working memory of the kernels and of saves {}",
                     byte_text(fixed.total()), byte_text(fixed.program), byte_text(fixed.working));
}

std::string save_text(const Config& config, const ParamTable& table, const TrainSetup& setup,
                      uint64_t disk_free) {
  const uint64_t bytes =
      checkpoint_bytes(table, setup.dtype, largest_save(setup, table, config.checkpoint.states));
  const std::string when = config.checkpoint.every > 0
                               ? fmt::format("every {} steps and at the end", config.checkpoint.every)
                               : "at the end";
  return fmt::format("{} each{}, {}, the newest {}{} kept; {} free on the disk", byte_text(bytes),
                     config.checkpoint.states ? "" : " (weights only: the run can't be resumed)", when,
                     config.checkpoint.keep, config.checkpoint.keep_best ? " and the best one" : "",
                     byte_text(disk_free));
}

/// Keys that change nothing, each once, with the reason where there is more to say.
std::string ignored_text(const std::vector<IgnoredKey>& keys) {
  std::string text;
  for (const IgnoredKey& key : keys)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", key.key,
                        key.note.empty() ? "" : " (" + key.note + ")");
  return text;
}

}  // namespace

std::string banner(const Config& config, const ModelSource& model, const Machine& machine,
                   const DataSets& data, const ParamTable& table, const TrainSetup& setup, int64_t steps,
                   uint64_t disk_free) {
  const MemoryPlan plan = plan_memory(setup, table);
  std::string text = fmt::format("tandem {}\n", kVersion);
  text += row("device",
              machine.device_kind + (machine.device_why.empty() ? "" : " (" + machine.device_why + ")"));
  text += row("cpu", fmt::format("{}; Adam {} ({})", machine.workers->describe(), name_of(machine.isa),
                                 machine.isa_why));
  text += row("numa", numa_text(machine));
  text += row("model", model_text(model, table));
  text += row("dtype", fmt::format("{} weights, activations and gradients; {}{}", name_of(setup.dtype),
                                   states_text(setup, table), scale_text(setup)));
  text += row("weights", weights_text(setup, table));
  text += row("schedule", schedule_text(setup, table));
  text += row("activation", activations_text(setup));
  text +=
      row("batch",
          fmt::format("{} sequences of {} tokens = micro-batch {} x accumulation {} x 1 rank; {} steps",
                      config.train_batch_size, setup.length, setup.micro_batch, setup.micro_batches, steps));
  text += row("data", fmt::format("{} samples an epoch, {:.2f} epochs{}", data.train_range.count,
                                  static_cast<double>(steps * config.train_batch_size) /
                                      static_cast<double>(data.train_range.count),
                                  data.eval_range.count > 0
                                      ? fmt::format("; {} samples for evaluation", data.eval_range.count)
                                      : ""));
  text += row("lr", rate_text(setup, steps));
  text += row("clip", setup.clip > 0 ? fmt::format("{} (global norm)", setup.clip) : "off");
  text +=
      row("decay", fmt::format("{} {}: {}", setup.adam.weight_decay,
                               setup.adam.decoupled ? "decoupled (AdamW)" : "L2 (Adam)",
                               names_text(table, [](const ParamSpec& p) { return p.decay && !p.frozen; })));
  text += row("no decay", names_text(table, [](const ParamSpec& p) { return !p.decay && !p.frozen; }));
  if (table.trained_count() < table.parameter_count())
    text += row("frozen", fmt::format("{} parameters: {}", table.parameter_count() - table.trained_count(),
                                      names_text(table, [](const ParamSpec& p) { return p.frozen; })));
  text += row("memory", fmt::format("device {}: {}", byte_text(plan.device_bytes()), scopes(plan.device)));
  text += row("", fmt::format("host {} ({} pinned): {}", byte_text(plan.host_bytes()),
                              byte_text(plan.pinned_bytes()), scopes(plan.host)));
  text += row("", fixed_text(machine, setup, table));
  text += row("saves", save_text(config, table, setup, disk_free));
  if (!config.ignored.empty()) text += row("no effect", ignored_text(config.ignored));
  if (model.folder)
    for (const std::string& warning : model.folder->warnings()) text += row("note", warning);
  if (model.arch.dropout > 0)
    text += row("note", fmt::format("dropout is not applied (the model's config names a rate of {})",
                                    model.arch.dropout));
  return text;
}

}  // namespace tandem
