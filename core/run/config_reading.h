#pragma once
// A config while it is read.
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "core/run/config.h"

namespace tandem {

/// The document, the Config so far and everything found wrong with it.
class Reading {
 public:
  explicit Reading(ConfigUse use) : use_(use) {}
  Config config;
  std::vector<Error> errors;

  [[nodiscard]] ConfigUse use() const { return use_; }
  /// What the document says under a key; nullptr if nothing.
  [[nodiscard]] const json::Value* given(std::string_view key) const;
  [[nodiscard]] bool is_true(std::string_view key) const;
  /// False once an error was found at the key or a section above it: its value means nothing.
  [[nodiscard]] bool usable(std::string_view key) const;
  [[nodiscard]] bool usable(std::initializer_list<std::string_view> keys) const;
  void fail(std::string_view key, std::string what, std::string hint);
  void fail(std::string_view key, Error error);
  void ignore(std::string_view key, std::string_view note);

 private:
  ConfigUse use_;
  std::set<std::string, std::less<>> failed_;
};

/// Applies "KEY=VALUE" texts to the document; what they bring has "--set KEY" as its place.
void apply_sets(Reading& reading, const std::vector<std::string>& sets);

/// What no single key can tell: derived values, combinations, the batch equation. Needs every field to be
/// set.
void apply_rules(Reading& reading);

}  // namespace tandem
