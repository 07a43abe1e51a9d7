#include "offload/cli/options.h"

namespace tandem {

void add_config_options(CLI::App& app, ConfigOptions& options) {
  app.add_option("CONFIG", options.path, "The config file (JSON; // comments are allowed)")->required();
  app.add_option("--set", options.sets,
                 "Sets a key of the config before any check, as in --set train.steps=10")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_json_option(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "Print the result as one JSON object");
}

}  // namespace tandem
