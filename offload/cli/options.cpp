#include "offload/cli/options.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.h"

namespace tandem {

void add_config_options(CLI::App& app, ConfigOptions& options) {
  app.add_option("CONFIG", options.path, "The config file (JSON; // comments are allowed)")->required();
  app.add_option("--set", options.sets,
                 "Sets a key of the config before any check, as in --set train.steps=10")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::Validator whole_number_from_1() {
  const auto refusal = [](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= 1) return {};
    return fmt::format("must be an integer >= 1, but is \"{}\"", printable(text));
  };
  return {refusal, ""};
}

void add_json_option(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "Print the result as one JSON object");
}

}  // namespace tandem
