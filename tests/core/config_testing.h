#pragma once
// What the config tests share.
#include <string>
#include <vector>

#include "core/run/config.h"

namespace tandem::config_testing {

/// The smallest config that trains.
inline const char* minimal() {
  return R"({
  "output_dir": "out",
  "train_batch_size": 8,
  "optimizer": {"params": {"lr": 1e-3}},
  "model": {"path": "m"},
  "data": {"train": "t.bin", "sequence_length": 77},
  "train": {"steps": 10}
})";
}

inline Config read(std::string_view text, const std::vector<std::string>& sets = {}) {
  return config_from_text(text, "c.json", "/base", sets);
}

/// The minimal config with what --set says.
inline Config with(const std::vector<std::string>& sets) { return read(minimal(), sets); }

/// What is wrong, each as "WHAT | WHERE | HINT"; empty if nothing is. Every error must have status 2.
inline std::vector<std::string> errors_in(std::string_view text, const std::vector<std::string>& sets = {},
                                          ConfigUse use = ConfigUse::train) {
  std::vector<std::string> out;
  const auto add = [&](const Error& error) {
    out.push_back(error.message() + " | " + error.where() + " | " + error.hint());
    if (error.status() != Status::usage) out.push_back("with another status than usage");
  };
  try {
    config_from_text(text, "c.json", "/base", sets, use);
  } catch (const ErrorList& list) {
    for (const Error& error : list.errors()) add(error);
  } catch (const Error& error) {
    add(error);
  }
  return out;
}

inline std::vector<std::string> errors_with(const std::vector<std::string>& sets) {
  return errors_in(minimal(), sets);
}

/// The only error; says so if there are none or several.
inline std::string error_with(const std::vector<std::string>& sets) {
  const auto errors = errors_with(sets);
  if (errors.size() == 1) return errors[0];
  std::string all = "(" + std::to_string(errors.size()) + " errors)";
  for (const std::string& error : errors) all += "\n" + error;
  return all;
}

}  // namespace tandem::config_testing
