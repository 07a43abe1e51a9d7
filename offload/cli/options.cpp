#include "offload/cli/options.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.h"

namespace tandem {

namespace {

DType parse_dtype(const std::string& name) {
  constexpr std::pair<std::string_view, DType> kNames[] = {{"float32", DType::f32},   {"fp32", DType::f32},
                                                           {"bfloat16", DType::bf16}, {"bf16", DType::bf16},
                                                           {"float16", DType::f16},   {"fp16", DType::f16}};
  for (const auto& [known, dtype] : kNames)
    if (name == known) return dtype;
  throw Error(Status::usage, "unknown dtype \"" + printable(name) + "\"", "--dtype",
              "float32, bfloat16 or float16");
}

}  // namespace

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

void add_dtype_option(CLI::App& app, std::optional<DType>& dtype, const std::string& absent) {
  app.add_option_function<std::string>(
      "--dtype", [&dtype](const std::string& name) { dtype = parse_dtype(name); },
      fmt::format("float32, bfloat16 or float16; else {}", absent));
}

void add_mmap_option(CLI::App& app, bool& mmap) {
  app.add_flag("--mmap", mmap, "Read the weights through a memory map instead of reads (as model.mmap)");
}

}  // namespace tandem
