// tandem plan: does it fit? Before anything is downloaded, allocated or run.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "offload/choices.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "offload/plan.h"
#include "offload/plan_time.h"
#include "offload/progress.h"
#include "offload/run_folder.h"

namespace tandem {

namespace {

json::Value known(size_t bytes) { return bytes == SIZE_MAX ? json::Value() : json::Value(bytes); }

void add_times(json::Object& all, const TimeReport& times) {
  json::Object hidden;
  for (const auto& [schedule, tokens] : times.hidden_from_tokens)
    hidden.push_back({schedule, static_cast<int64_t>(std::ceil(tokens))});
  json::Array knobs;
  for (const KnobEffect& knob : times.knobs)
    knobs.push_back(json::Object{{"key", knob.key},
                                 {"value", knob.value},
                                 {"step_ms", knob.step_ms},
                                 {"tokens_per_s", knob.tokens_per_s},
                                 {"bytes_saved", knob.bytes_saved}});
  const Replay& step = times.step;
  all.push_back({"step_ms", step.step_ms});
  all.push_back({"tokens_per_s", times.tokens_per_s});
  all.push_back(
      {"exposed_ms",
       json::Object{
           {"d2h", step.d2h_ms}, {"adam", step.adam_ms}, {"h2d", step.h2d_ms}, {"other", step.other_ms}}});
  all.push_back({"binding", std::string(name_of(step.binding()))});
  all.push_back({"hidden_from_tokens", std::move(hidden)});
  all.push_back({"ratio_to_gpu_only", times.ratio_to_gpu_only()});
  all.push_back({"knobs", std::move(knobs)});
}

json::Value as_json(const MemoryReport& report, const TrainSetup& setup, const ParamTable& table,
                    const std::optional<TimeReport>& times) {
  json::Object tiers;
  for (const PlanTier& tier : report.tiers) {
    json::Object scopes;
    for (const auto& [scope, bytes] : tier.scopes) scopes.push_back({scope, bytes});
    tiers.push_back({tier.name, json::Object{{"need_bytes", tier.need},
                                             {"limit_bytes", known(tier.limit)},
                                             {"scopes", std::move(scopes)}}});
  }
  json::Object all{{"fits", report.fits()},
                   {"first_knob", report.first_knob ? json::Value(*report.first_knob) : json::Value()},
                   {"tiers", std::move(tiers)},
                   {"activations", activations_text(setup)},
                   {"placement", placement_text(setup, table)}};
  if (times) add_times(all, *times);
  return all;
}

void print(const PlanTier& tier) {
  fmt::print("{:<14} {:>12} {:>12}  {:<5} {}\n", tier.name, byte_text(tier.need),
             tier.limit == SIZE_MAX ? "unknown" : byte_text(tier.limit), tier.fits() ? "" : "SHORT",
             tier.note);
  if (tier.name == "pinned") return;  // its scopes stand below host
  std::vector<std::pair<std::string, size_t>> scopes(tier.scopes.begin(), tier.scopes.end());
  std::stable_sort(scopes.begin(), scopes.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [scope, bytes] : scopes) fmt::print("  {:<12} {:>12}\n", scope, byte_text(bytes));
}

void print(const ModelSource& model, const ParamTable& table, const Machine& machine,
           const TrainSetup& setup) {
  fmt::print("model   {}, {} parameters in {} blocks\n", model.arch.model_type, table.parameter_count(),
             table.block_count());
  fmt::print("step    {} micro-batches of {} x {} tokens, {}\n", setup.micro_batches, setup.micro_batch,
             setup.length, name_of(setup.dtype));
  fmt::print("choice  activations {}; {}\n", activations_text(setup), placement_text(setup, table));
  fmt::print("device  {}{}\n\n", machine.device_kind,
             machine.device_why.empty() ? "" : " (" + machine.device_why + ")");
  fmt::print("{:<14} {:>12} {:>12}\n", "", "needs", "may use");
}

void print(const TimeReport& times, const HardwareProfile& hardware, int64_t tokens) {
  const Replay& step = times.step;
  fmt::print("\nOn a machine like \"{}\", replayed:\n", hardware.name);
  fmt::print("step    {:.1f} ms, {:.0f} tokens/s; {:.2f} times the {:.1f} ms with everything on the device\n",
             step.step_ms, times.tokens_per_s, times.ratio_to_gpu_only(), times.gpu_only_ms);
  fmt::print("exposed optimizer {:.1f} ms, gradients down {:.1f} ms, weights up {:.1f} ms, other {:.1f} ms\n",
             step.adam_ms, step.d2h_ms, step.h2d_ms, step.other_ms);
  fmt::print("binding {}, in use {:.0f} % of the time\n", name_of(step.binding()),
             100 * step.busy[static_cast<size_t>(step.binding())]);
  std::string hidden;
  for (const auto& [schedule, from] : times.hidden_from_tokens)
    hidden += fmt::format("{}{} {:.0f}", hidden.empty() ? "" : ", ", schedule, std::ceil(from));
  fmt::print("hidden  from tokens per step: {} (this plan: {})\n", hidden, tokens);
  fmt::print("\n{:<66} {:>10} {:>10} {:>12}\n", "one knob turned", "step ms", "tokens/s", "saves");
  for (const KnobEffect& knob : times.knobs)
    fmt::print(
        "{:<66} {:>10.1f} {:>10.0f} {:>12}\n", knob.key + ": " + knob.value, knob.step_ms, knob.tokens_per_s,
        (knob.bytes_saved < 0 ? "-" : "") + byte_text(static_cast<size_t>(std::abs(knob.bytes_saved))));
}

class Plan : public Command {
 public:
  void add_options(CLI::App& app) override {
    add_config_options(app, config_);
    app.add_option("--hardware", hardware_, "predict times on such a machine: a profile's name, or FILE.json")
        ->type_name("NAME|FILE");
    add_json_option(app, json_);
  }
  Status run(const GlobalOptions&) override {
    const Config config = load_config(config_.path, config_.sets, ConfigUse::evaluate);
    check(config);
    std::optional<HardwareProfile> hardware;
    if (!hardware_.empty()) hardware = load_hardware(hardware_);
    const Machine machine = find_planned_machine(config);
    const ModelSource model = open_model(config);
    const ParamTable table(model.arch, config.optimizer.no_decay, config.model.freeze);
    // The number of steps decides the learning rate, and no byte.
    const TrainSetup setup = make_setup(config, model.arch, table, config.train.steps.value_or(1), machine);
    const MemoryReport report = report_memory(
        config, machine, setup, table, free_disk_bytes(config.output_dir.empty() ? "." : config.output_dir));
    std::optional<TimeReport> times;
    if (hardware) times = report_time(machine, setup, table, *hardware);
    if (json_) {
      fmt::print("{}\n", json::dump(as_json(report, setup, table, times), 2));
    } else {
      print(model, table, machine, setup);
      for (const PlanTier& tier : report.tiers) print(tier);
      fmt::print("\n{}\n", report.fits() ? "It fits." : "It does not fit.");
      if (times) print(*times, *hardware, setup.tokens_per_step());
    }
    if (report.fits()) return Status::ok;
    throw Error(Status::does_not_fit, "the run does not fit: " + report.lack,
                report.where.empty() ? config_.path : config.where(report.where),
                report.first_knob.value_or("a smaller model, or a machine with more (`tandem doctor` shows "
                                           "what this one has)"));
  }

 private:
  /// Data need not be there yet, nor the card.
  static void check(Config config) {
    config.device.kind = "host";
    constexpr std::string_view kPaths[] = {"model.path", "model.config"};
    check_names(config, kPaths);
  }
  ConfigOptions config_;
  std::string hardware_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan() { return std::make_unique<Plan>(); }

}  // namespace tandem
