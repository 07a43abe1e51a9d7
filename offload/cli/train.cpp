// tandem train: the main job.
#include <fmt/format.h>

#include <cmath>

#include "core/io/json.h"
#include "offload/assembly.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "offload/progress.h"
#include "offload/training_run.h"

namespace tandem {

namespace {

json::Value or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json::Value(*value) : json::Value();
}

json::Value as_json(const RunResult& result) {
  return json::Object{
      {"run", result.run},
      {"step", result.step},
      {"updates", result.updates},
      {"skipped", result.skipped},
      {"loss", or_null(result.loss)},
      {"eval_loss", or_null(result.eval_loss)},
      {"checkpoint", result.checkpoint.empty() ? json::Value() : json::Value(result.checkpoint)},
      {"tokens", result.tokens},
      {"seconds", result.seconds},
      {"tokens_per_s", result.tokens_per_s},
      {"stopped_by", result.stopped_by.empty() ? json::Value() : json::Value(result.stopped_by)}};
}

void print(const RunResult& result) {
  if (result.loss)
    fmt::print("loss        {:.4f} after step {} ({} updates, {} skipped)\n", *result.loss, result.step,
               result.updates, result.skipped);
  if (result.eval_loss) fmt::print("held-out    {:.4f}\n", *result.eval_loss);
  if (result.tokens_per_s > 0)
    fmt::print("speed       {:.0f} tokens/s, {} in all\n", result.tokens_per_s, duration(result.seconds));
  fmt::print("checkpoint  {}\n", result.checkpoint.empty() ? "none" : result.checkpoint);
  fmt::print("run         {} (stopped by {})\n", result.run, result.stopped_by);
}

class Train : public Command {
 public:
  void add_options(CLI::App& app) override {
    add_config_options(app, config_);
    add_json_option(app, json_);
    app.add_option("--resume", options_.resume,
                   "Go on with a run: \"auto\" (the newest complete checkpoint) or a checkpoint's path");
    app.add_option("--max-steps", options_.max_steps,
                   "Stop after this step, counted from the run's very first start, and save")
        ->type_name("N")
        ->check(whole_number_from_1());
    app.add_flag("--dry-run", options_.dry_run, "Check everything and show the banner; write nothing");
  }
  Status run(const GlobalOptions& global) override {
    options_.quiet = global.quiet;
    options_.sets = config_.sets;
    const Config config = load_config(config_.path, config_.sets);
    constexpr std::string_view kPaths[] = {"model.path", "model.config", "model.tokenizer", "data.train",
                                           "data.eval"};
    check_names(config, kPaths);
    const RunResult result = train(config, options_);
    if (json_)
      fmt::print("{}\n", json::dump(as_json(result), 2));
    else if (!options_.dry_run)
      print(result);
    return result.status;
  }

 private:
  ConfigOptions config_;
  RunOptions options_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<Train>(); }

}  // namespace tandem
