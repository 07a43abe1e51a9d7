// tandem plan: does it fit? Before anything is downloaded, allocated or run.
#include <algorithm>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "offload/choices.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "offload/plan.h"
#include "offload/progress.h"
#include "offload/run_folder.h"

namespace tandem {

namespace {

json::Value known(size_t bytes) { return bytes == SIZE_MAX ? json::Value() : json::Value(bytes); }

json::Value as_json(const MemoryReport& report) {
  json::Object tiers;
  for (const PlanTier& tier : report.tiers) {
    json::Object scopes;
    for (const auto& [scope, bytes] : tier.scopes) scopes.push_back({scope, bytes});
    tiers.push_back({tier.name, json::Object{{"need_bytes", tier.need},
                                             {"limit_bytes", known(tier.limit)},
                                             {"scopes", std::move(scopes)}}});
  }
  return json::Object{{"fits", report.fits()},
                      {"first_knob", report.first_knob ? json::Value(*report.first_knob) : json::Value()},
                      {"tiers", std::move(tiers)}};
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

class Plan : public Command {
 public:
  void add_options(CLI::App& app) override {
    add_config_options(app, config_);
    add_json_option(app, json_);
  }
  Status run(const GlobalOptions&) override {
    const Config config = load_config(config_.path, config_.sets, ConfigUse::evaluate);
    check(config);
    const Machine machine = find_planned_machine(config);
    const ModelSource model = open_model(config);
    const ParamTable table(model.arch, config.optimizer.no_decay, config.model.freeze);
    // The number of steps decides the learning rate, and no byte.
    const TrainSetup setup = make_setup(config, model.arch, table, config.train.steps.value_or(1), machine);
    const MemoryReport report = report_memory(
        config, machine, setup, table, free_disk_bytes(config.output_dir.empty() ? "." : config.output_dir));
    if (json_) {
      fmt::print("{}\n", json::dump(as_json(report), 2));
    } else {
      print(model, table, machine, setup);
      for (const PlanTier& tier : report.tiers) print(tier);
      fmt::print("\n{}\n", report.fits() ? "It fits." : "It does not fit.");
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
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan() { return std::make_unique<Plan>(); }

}  // namespace tandem
