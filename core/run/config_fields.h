#pragma once
// The table of config keys, for the units that read, check, hint, dump and document configs.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/run/config.h"

namespace tandem {

enum class FieldKind : uint8_t {
  boolean,
  integer,  ///< 5e8 too; at most 2147483647 unless the range says more
  u64,
  real,
  text,
  choice,       ///< one of Field::choices
  bytes,        ///< an integer or "24GiB"
  texts,        ///< list of strings
  path,         ///< of something that is read
  output_path,  ///< of something that is written
  paths,        ///< one path or a list
  betas,        ///< two numbers in [0, 1)
  arch,         ///< config.json's keys, or the path of such a file
};

/// Bounds of a number; "above" excludes its bound.
struct Range {
  std::optional<double> low = {}, high = {};
  bool above_low = false;
};
inline Range at_least(double low) { return {low, {}, false}; }
inline Range above(double low) { return {low, {}, true}; }
inline Range between(double low, double high) { return {low, high, false}; }

enum class Origin : uint8_t { deepspeed, tandem };

struct Field;
/// How a field's value gets into a Config and back. Values are normalised: integers as integers, bytes as a
/// number, paths absolute and lists as lists. get returns null for what is absent.
struct Slot {
  void (*set)(Config&, const json::Value&, const Field&) = nullptr;
  json::Value (*get)(const Config&, const Field&) = nullptr;
};

/// One key of the config.
struct Field {
  std::string_view key;
  FieldKind kind;
  std::string_view fallback = "";  ///< the default as JSON; empty: required, derived, or absent
  Origin origin = Origin::tandem;
  Range range = {};
  std::vector<std::string_view> choices = {};        ///< in the order of the enumerators
  std::vector<std::string_view> later_choices = {};  ///< known, but refused as not supported yet
  bool required = false;
  bool null_allowed = false;             ///< null stands for "absent"
  std::string_view default_text = "";    ///< for the docs, where the default is no constant
  bool later = false;                    ///< known, but only the value without effect is accepted yet
  std::string_view without_effect = "";  ///< that value as JSON, where it is not the default
  Slot slot = {};                        ///< none where nothing is stored
  std::string_view meaning;
};

const std::vector<Field>& config_fields();
const Field* find_field(std::string_view key);

/// A key that configs written for DeepSpeed carry and that has no field. Globs: '*'.
struct ForeignKey {
  enum class Effect : uint8_t { ignored, ignored_when_false, refused };
  std::string_view pattern;
  Effect effect;
  std::string_view note = "";
};
const std::vector<ForeignKey>& foreign_keys();
const ForeignKey* find_foreign(std::string_view key);

/// "an integer >= 1", "\"log\" or \"linear\"": what the field accepts, for errors and docs.
std::string accepts(const Field& field);
/// The node's value in normalised form. Error(usage) at the node if it is not what the field accepts.
/// base_dir: where relative paths that are read start.
json::Value normalised(const Field& field, const json::Node& node, const std::filesystem::path& base_dir);

/// Something to do about a key that is not known: the nearest valid one.
std::string hint_for_unknown(std::string_view key);

/// True if this type of schedule reads the key ("warmup_num_steps") below scheduler.params.
bool schedule_reads(ScheduleType type, std::string_view param);

}  // namespace tandem
