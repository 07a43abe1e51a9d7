// A Config written out: as a config again, as differences, as the docs page.
#include "core/run/config_fields.h"

namespace tandem {

namespace {

constexpr std::string_view kSchedulerParams = "scheduler.params.";

/// What the config says under a field; null for what is absent or has no effect.
json::Value value_of(const Config& config, const Field& field) {
  if (!field.slot.get) return {};
  if (field.key.starts_with(kSchedulerParams) &&
      !schedule_reads(config.scheduler.type, field.key.substr(kSchedulerParams.size())))
    return {};
  return field.slot.get(config, field);
}

void put(json::Value& root, std::string_view key, json::Value value) {
  const size_t dot = key.find('.');
  if (dot == key.npos) {
    root.set(std::string(key), std::move(value));
    return;
  }
  const std::string section(key.substr(0, dot));
  json::Value* inner = root.find(section);
  put(inner ? *inner : root.set(section, json::Object{}), key.substr(dot + 1), std::move(value));
}

void compare(std::vector<Difference>& out, const std::string& key, const json::Value* before,
             const json::Value* after) {
  if (before && after && before->is_object() && after->is_object()) {
    for (const json::Member& member : *before->object())
      compare(out, json::join_path(key, member.key), &member.value, after->find(member.key));
    for (const json::Member& member : *after->object())
      if (!before->find(member.key)) compare(out, json::join_path(key, member.key), nullptr, &member.value);
    return;
  }
  if (before && after && *before == *after) return;
  const auto text = [](const json::Value* value) { return value ? json::dump(*value) : "absent"; };
  out.push_back({key, text(before), text(after)});
}

/// A cell of a Markdown table: a '|' would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string row(const Field& field) {
  std::string type = accepts(field);
  if (field.key == "device.kind") type = "\"auto\", \"cuda\", \"cuda:N\" or \"host\"";
  for (const std::string_view choice : field.later_choices) type += fmt::format("; \"{}\" (not yet)", choice);
  if (field.null_allowed) type += ", or null";
  std::string standard(field.default_text.empty() ? field.fallback : field.default_text);
  if (field.required) standard = "required";
  if (!field.default_text.empty() || field.required)
    standard = cell(standard);
  else
    standard = "`" + standard + "`";
  return fmt::format("| `{}` | {} | {} | {}{} | {} |\n", field.key, cell(type), standard, cell(field.meaning),
                     field.later ? " (not yet)" : "",
                     field.origin == Origin::deepspeed ? "DeepSpeed" : "Tandem");
}

std::string foreign_list(bool refused) {
  std::string out;
  for (const ForeignKey& foreign : foreign_keys()) {
    if ((foreign.effect == ForeignKey::Effect::refused) != refused) continue;
    out += fmt::format("- `{}`{}{}\n", foreign.pattern,
                       foreign.effect == ForeignKey::Effect::ignored_when_false ? ", where it is false" : "",
                       foreign.note.empty() ? "" : fmt::format(" ({})", foreign.note));
  }
  return out;
}

}  // namespace

json::Value resolved(const Config& config) {
  json::Value root = json::Object{};
  for (const Field& field : config_fields()) {
    json::Value value = value_of(config, field);
    if (!value.is_null()) put(root, field.key, std::move(value));
  }
  return root;
}

std::vector<Difference> differences(const Config& before, const Config& after) {
  std::vector<Difference> out;
  for (const Field& field : config_fields()) {
    const json::Value a = value_of(before, field), b = value_of(after, field);
    if (a.is_null() && b.is_null()) continue;
    compare(out, std::string(field.key), a.is_null() ? nullptr : &a, b.is_null() ? nullptr : &b);
  }
  return out;
}

std::string config_page() {
  std::string page =
      "<!-- Made from core/run/config_fields.cpp; tests/core/config_docs_test.cpp says how to make it again. "
      "-->\n"
      "# The config\n\n"
      "One JSON object; `//` comments are allowed. Integers may be written `5e8`. Byte sizes are integers or "
      "strings like\n"
      "`\"24GiB\"` and `\"24GB\"`. Paths that are read are relative to the config file's folder, "
      "`output_dir` to the working\n"
      "directory. `--set KEY=VALUE` changes a key before anything is checked; VALUE is JSON, or else a "
      "string.\n"
      "\"Not yet\" marks what is known by name and refused until it works.\n\n"
      "| key | value | default | meaning | from |\n|---|---|---|---|---|\n";
  for (const Field& field : config_fields()) page += row(field);
  page +=
      "\n## Accepted without effect\n\nListed once at the start of a run, so that a config written for "
      "DeepSpeed loads:\n\n" +
      foreign_list(false) + "\n## Refused by name\n\nThese would change the result:\n\n" + foreign_list(true);
  return page;
}

}  // namespace tandem
