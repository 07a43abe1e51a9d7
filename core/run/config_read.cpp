// From a text to a checked Config: parse, --set, known keys, values, rules.
#include <algorithm>

#include "core/run/config_fields.h"
#include "core/run/config_reading.h"

namespace tandem {

namespace {

constexpr size_t kMaxBytes = 16u << 20;  // far above any config that was written by hand

/// The value under a dotted path; nullptr if there is none.
const json::Value* look_up(const json::Value& root, std::string_view key) {
  const json::Value* value = &root;
  while (value && !key.empty()) {
    const size_t dot = key.find('.');
    value = value->find(key.substr(0, dot));
    key = dot == key.npos ? std::string_view() : key.substr(dot + 1);
  }
  return value;
}

/// The key without its last part; empty for a top-level key.
std::string_view section_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == key.npos ? std::string_view() : key.substr(0, dot);
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  const auto below = [&](std::string_view key) { return key.starts_with(prefix); };
  const auto& fields = config_fields();
  return std::any_of(fields.begin(), fields.end(), [&](const Field& field) { return below(field.key); });
}

void read_foreign(Reading& reading, const std::string& key, const ForeignKey& foreign,
                  const json::Value& value) {
  using Effect = ForeignKey::Effect;
  if (foreign.effect == Effect::refused)
    return reading.fail(key, fmt::format("{} would change the result and is not supported", key),
                        "leave it out");
  if (foreign.effect == Effect::ignored_when_false && value != json::Value(false) &&
      value != json::Value("auto"))
    return reading.fail(key, fmt::format("{} {} is not supported", key, json::describe(value)),
                        "false, or leave it out");
  reading.ignore(key, foreign.note);
}

/// Finds the keys that nobody knows, and those that are known without being read.
void walk(Reading& reading, const json::Value& section, const std::string& path) {
  for (const json::Member& member : *section.object()) {
    const std::string key = json::join_path(path, member.key);
    const size_t dot = member.key.find('.');
    if (dot != member.key.npos) {
      // It would look like a known key in every message, and nothing would read it.
      reading.fail(key, Error(Status::usage, fmt::format("the key \"{}\" has a dot", printable(member.key)),
                              reading.config.document.where(member.at, path),
                              fmt::format("\"{}\": {{\"{}\": ...}}", printable(member.key.substr(0, dot)),
                                          printable(member.key.substr(dot + 1)))));
      continue;
    }
    if (find_field(key)) continue;
    if (const ForeignKey* foreign = find_foreign(key)) {
      read_foreign(reading, key, *foreign, member.value);
    } else if (!is_section(key)) {
      reading.fail(key, Error(Status::usage, fmt::format("unknown key \"{}\"", printable(key)),
                              reading.config.document.where(member.at, key), hint_for_unknown(key)));
    } else if (member.value.is_object()) {
      walk(reading, member.value, key);
    } else {
      reading.fail(key, fmt::format("{} must be an object, but is {}", key, json::describe(member.value)),
                   "");
    }
  }
}

void read_field(Reading& reading, const Field& field, const std::filesystem::path& base_dir) {
  const json::Value* value = reading.given(field.key);
  if (!reading.usable(field.key)) return;
  try {
    if (value) {
      const json::Value normal =
          normalised(field, json::Node(reading.config.document, *value, std::string(field.key)), base_dir);
      if (field.slot.set) field.slot.set(reading.config, normal, field);
    } else if (field.required) {
      reading.fail(field.key, fmt::format("{} is missing", field.key), accepts(field));
    } else if (!field.fallback.empty() && field.slot.set) {
      const json::Document fallback = json::parse(field.fallback, std::string(field.key));
      field.slot.set(reading.config, normalised(field, json::Node(fallback), base_dir), field);
    }
  } catch (const Error& error) {
    reading.fail(field.key, error);
  }
}

void mark_source(json::Value& value, uint32_t source) {
  value.at = {0, 0, source};
  if (json::Array* array = value.array())
    for (json::Value& item : *array) mark_source(item, source);
  if (json::Object* object = value.object())
    for (json::Member& member : *object) {
      member.at = {0, 0, source};
      mark_source(member.value, source);
    }
}

/// VALUE as JSON, or else as the string that it is.
json::Value set_value(std::string_view text) {
  try {
    return json::parse(text, "--set").root;
  } catch (const Error&) {
    return text;
  }
}

/// The value under the path, made where it is not there. nullptr if something on the way is no object.
json::Value* reach(json::Value& root, std::string_view key, uint32_t source) {
  json::Value* value = &root;
  while (true) {
    const size_t dot = key.find('.');
    const std::string part(key.substr(0, dot));
    if (!value->is_object() && !value->is_null()) return nullptr;
    json::Value* next = value->find(part);
    if (!next) {
      value->set(part, {});
      value->object()->back().at = {0, 0, source};
      next = &value->object()->back().value;
      next->at = {0, 0, source};
    }
    value = next;
    if (dot == key.npos) return value;
    key.remove_prefix(dot + 1);
  }
}

Config read(json::Document document, std::vector<Error> errors, const std::filesystem::path& base_dir,
            const std::vector<std::string>& sets, ConfigUse use) {
  Reading reading(use);
  reading.errors = std::move(errors);
  reading.config.document = std::move(document);
  const json::Value& root = reading.config.document.root;
  CHECK(root.is_object(), Status::usage,
        fmt::format("a config must be an object, but is {}", json::describe(root)),
        reading.config.document.where(root.at), "{ ... }");
  apply_sets(reading, sets);
  walk(reading, root, "");
  const auto base = std::filesystem::current_path() / base_dir;  // absolute() refuses an empty path
  for (const Field& field : config_fields()) read_field(reading, field, base);
  apply_rules(reading);
  if (!reading.errors.empty()) throw ErrorList(std::move(reading.errors));
  return std::move(reading.config);
}

json::Options options(std::vector<Error>& duplicates) {
  return {.comments = true, .max_bytes = kMaxBytes, .duplicates = &duplicates};
}

}  // namespace

void apply_sets(Reading& reading, const std::vector<std::string>& sets) {
  json::Document& document = reading.config.document;
  for (const std::string& text : sets) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0) {
      reading.errors.emplace_back(Status::usage,
                                  fmt::format("--set needs KEY=VALUE, but is \"{}\"", printable(text)),
                                  "--set", "--set train.steps=100");
      continue;
    }
    const std::string key = text.substr(0, equals);
    document.sources.push_back("--set " + printable(key));
    const auto source = static_cast<uint32_t>(document.sources.size());
    if (json::Value* value = reach(document.root, key, source)) {
      *value = set_value(std::string_view(text).substr(equals + 1));
      mark_source(*value, source);
    } else {
      reading.errors.emplace_back(Status::usage,
                                  fmt::format("{} lies in something that is no object", printable(key)),
                                  document.sources.back(), hint_for_unknown(key));
    }
  }
}

const json::Value* Reading::given(std::string_view key) const { return look_up(config.document.root, key); }

bool Reading::is_true(std::string_view key) const {
  const json::Value* value = given(key);
  return value && *value == json::Value(true);
}

bool Reading::usable(std::string_view key) const {
  for (; !key.empty(); key = section_of(key))
    if (failed_.contains(key)) return false;
  return true;
}

bool Reading::usable(std::initializer_list<std::string_view> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) { return usable(key); });
}

void Reading::fail(std::string_view key, std::string what, std::string hint) {
  fail(key, Error(Status::usage, std::move(what), config.where(key), std::move(hint)));
}

void Reading::fail(std::string_view key, Error error) {
  failed_.emplace(key);
  errors.push_back(std::move(error));
}

void Reading::ignore(std::string_view key, std::string_view note) {
  config.ignored.push_back({std::string(key), config.where(key), std::string(note)});
}

Config load_config(const std::filesystem::path& path, const std::vector<std::string>& sets, ConfigUse use) {
  std::vector<Error> duplicates;
  json::Document document = json::parse_file(path, options(duplicates));
  return read(std::move(document), std::move(duplicates), path.parent_path(), sets, use);
}

Config config_from_text(std::string_view text, std::string name, const std::filesystem::path& base_dir,
                        const std::vector<std::string>& sets, ConfigUse use) {
  std::vector<Error> duplicates;
  json::Document document = json::parse(text, std::move(name), options(duplicates));
  return read(std::move(document), std::move(duplicates), base_dir, sets, use);
}

DType Config::dtype() const {
  if (bf16_enabled) return DType::bf16;
  return fp16_enabled ? DType::f16 : DType::f32;
}

std::string Config::where(std::string_view key) const {
  for (std::string_view near = key;; near = section_of(near)) {
    const json::Value* value = look_up(document.root, near);
    if (value || near.empty()) return document.where(value ? value->at : json::Position(), key);
  }
}

json::Node Config::model_config() const { return {document, model.config, "model.config"}; }

ScheduleConfig schedule_of(const Config& config, int64_t run_steps) {
  const Config::Scheduler& given = config.scheduler;
  return {.type = given.type,
          .lr = config.optimizer.lr,
          .warmup_steps = given.warmup_num_steps,
          .warmup_type = given.warmup_type,
          .min_lr = given.warmup_min_lr,
          .max_lr = given.warmup_max_lr.value_or(config.optimizer.lr),
          .total_steps = given.total_num_steps.value_or(run_steps),
          .cos_min_ratio = given.cos_min_ratio,
          .warmup_min_ratio = given.warmup_min_ratio};
}

LossScaleConfig loss_scaling(const Config& config) {
  return config.fp16_enabled ? config.fp16 : LossScaleConfig{.fixed = 1};
}

}  // namespace tandem
