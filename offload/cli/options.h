#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"

namespace tandem {

// Options that several subcommands share, so that each has one spelling and one description.

/// CONFIG and --set KEY=VALUE.
struct ConfigOptions {
  std::string path;               ///< as given; a path that does not exist is refused by whoever reads it
  std::vector<std::string> sets;  ///< "KEY=VALUE" in the order given; the last of a key wins
};

/// CONFIG, required, and --set.
void add_config_options(CLI::App& app, ConfigOptions& options);

/// Refuses whatever is no whole number from 1 on.
CLI::Validator whole_number_from_1();

/// --json: stdout is one JSON object.
void add_json_option(CLI::App& app, bool& json);

/// --dtype: float32, bfloat16 or float16; `absent` says what holds without it.
void add_dtype_option(CLI::App& app, std::optional<DType>& dtype, const std::string& absent);

/// --mmap, as the key model.mmap.
void add_mmap_option(CLI::App& app, bool& mmap);

}  // namespace tandem
