// One field, one value: what is accepted, and its normalised form.
#include <algorithm>
#include <cmath>
#include <system_error>

#include "core/run/byte_size.h"
#include "core/run/config_fields.h"

namespace tandem {

namespace {

constexpr double kMostInteger = 2147483647;  // products of two such fit into 64 bits

std::string quoted_list(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

std::string range_text(const Range& range) {
  if (range.low && range.high) return fmt::format(" from {} to {}", *range.low, *range.high);
  if (range.low) return fmt::format(" {} {}", range.above_low ? ">" : ">=", *range.low);
  return "";
}

bool in_range(const Range& range, double value) {
  if (range.low && (range.above_low ? value <= *range.low : value < *range.low)) return false;
  return !range.high || value <= *range.high;
}

[[noreturn]] void refuse(const Field& field, const json::Node& node, std::string hint = {}) {
  node.fail(fmt::format("{} must be {}, but is {}", field.key, accepts(field), json::describe(node.value())),
            std::move(hint));
}

json::Value integer(const Field& field, const json::Node& node) {
  const auto value = node.value().whole_i64();
  if (!value || !in_range(field.range, static_cast<double>(*value))) refuse(field, node);
  if (!field.range.high && static_cast<double>(*value) > kMostInteger)
    node.fail(fmt::format("{} is {}, above the limit of {}", field.key, *value, kMostInteger));
  return *value;
}

json::Value real(const Field& field, const json::Node& node) {
  const auto value = node.value().number();
  if (!value || !in_range(field.range, *value)) refuse(field, node);
  return *value;
}

json::Value u64(const Field& field, const json::Node& node) {
  const auto value = node.value().whole_u64();
  if (!value) refuse(field, node);
  return *value;
}

json::Value bytes(const Field& field, const json::Node& node) {
  const json::Value& given = node.value();
  const auto value = given.is_string() ? parse_byte_size(*given.string()) : given.whole_u64();
  if (!value || *value >> 63 != 0 || !in_range(field.range, static_cast<double>(*value)))
    refuse(field, node, "an integer, or a number and one of KiB, MiB, GiB, TiB, KB, MB, GB, TB");
  return *value;
}

json::Value choice(const Field& field, const json::Node& node) {
  const std::string* name = node.value().string();
  const auto among = [&](const std::vector<std::string_view>& names) {
    return name && std::find(names.begin(), names.end(), *name) != names.end();
  };
  if (among(field.later_choices))
    node.fail(fmt::format("{} \"{}\" is not supported yet", field.key, *name), quoted_list(field.choices));
  if (!among(field.choices)) {
    if (!name) refuse(field, node);
    node.fail(fmt::format("{} \"{}\" is not supported", field.key, printable(*name)),
              quoted_list(field.choices));
  }
  return node.value();
}

json::Value betas(const Field& field, const json::Node& node) {
  const json::Array* pair = node.value().array();
  const auto good = [](const json::Value& beta) {
    return beta.number() && *beta.number() >= 0 && *beta.number() < 1;
  };
  if (!pair || pair->size() != 2) refuse(field, node);
  json::Value out = json::Array{};
  for (const json::Node& item : node.items()) {
    if (!good(item.value()))
      item.fail(fmt::format("{} must be a number from 0 to below 1, but is {}", item.path(),
                            json::describe(item.value())));
    out.push(*item.value().number());
  }
  return out;
}

const std::string& text(const Field& field, const json::Node& node, bool empty_allowed) {
  const std::string* value = node.value().string();
  if (!value || (value->empty() && !empty_allowed)) refuse(field, node);
  return *value;
}

json::Value texts(const Field& field, const json::Node& node) {
  if (!node.value().is_array()) refuse(field, node);
  for (const json::Node& item : node.items())
    if (item.as_string().empty()) item.fail(fmt::format("{} is empty", item.path()));
  return node.value();
}

std::string absolute(const std::filesystem::path& base, const std::string& path) {
  return (base / path).lexically_normal().string();
}

json::Value paths(const Field& field, const json::Node& node, const std::filesystem::path& base) {
  if (node.value().is_string()) return json::Array{absolute(base, text(field, node, false))};
  if (!node.value().is_array()) refuse(field, node);
  json::Value out = json::Array{};
  for (const json::Node& item : node.items()) {
    if (item.value().is_object())
      item.fail(fmt::format("{} is an object: weights of data files are not supported yet", item.path()),
                "a path");
    if (item.as_string().empty()) item.fail(fmt::format("{} is empty", item.path()));
    out.push(absolute(base, item.as_string()));
  }
  if (!in_range(field.range, static_cast<double>(out.array()->size())))
    node.fail(fmt::format("{} names no file", field.key));
  return out;
}

json::Value arch(const Field& field, const json::Node& node, const std::filesystem::path& base) {
  if (node.value().is_object()) return node.value();
  return absolute(base, text(field, node, false));
}

json::Value checked(const Field& field, const json::Node& node, const std::filesystem::path& base) {
  switch (field.kind) {
    case FieldKind::boolean:
      if (!node.value().boolean()) refuse(field, node);
      return node.value();
    case FieldKind::integer:
      return integer(field, node);
    case FieldKind::u64:
      return u64(field, node);
    case FieldKind::real:
      return real(field, node);
    case FieldKind::text:
      return text(field, node, field.fallback == "\"\"");
    case FieldKind::choice:
      return choice(field, node);
    case FieldKind::bytes:
      return bytes(field, node);
    case FieldKind::texts:
      return texts(field, node);
    case FieldKind::path:
      return absolute(base, text(field, node, false));
    case FieldKind::output_path:
      return absolute(std::filesystem::current_path(), text(field, node, false));
    case FieldKind::paths:
      return paths(field, node, base);
    case FieldKind::betas:
      return betas(field, node);
    case FieldKind::arch:
      return arch(field, node, base);
  }
  return {};
}

/// Hugging Face's "auto" means "fill this in for me", which nobody does here.
bool is_unresolved(const Field& field, const json::Value& value) {
  const auto names_auto = [](const std::vector<std::string_view>& names) {
    return std::find(names.begin(), names.end(), "auto") != names.end();
  };
  return value == json::Value("auto") && field.fallback != "\"auto\"" && !names_auto(field.choices) &&
         !names_auto(field.later_choices);
}

}  // namespace

std::string accepts(const Field& field) {
  const std::string range = range_text(field.range);
  switch (field.kind) {
    case FieldKind::boolean:
      return "true or false";
    case FieldKind::integer:
      return "an integer" + range;
    case FieldKind::u64:
      return "an integer from 0 to 2^64 - 1";
    case FieldKind::real:
      return "a number" + range;
    case FieldKind::text:
      return "a string";
    case FieldKind::choice:
      return quoted_list(field.choices);
    case FieldKind::bytes:
      return "a number of bytes" + range;
    case FieldKind::texts:
      return "a list of strings";
    case FieldKind::path:
    case FieldKind::output_path:
      return "a path";
    case FieldKind::paths:
      return "a path or a list of paths";
    case FieldKind::betas:
      return "a list of two numbers from 0 to below 1";
    case FieldKind::arch:
      return "an object or a path";
  }
  return "";
}

json::Value normalised(const Field& field, const json::Node& node, const std::filesystem::path& base_dir) {
  if (node.is_null() && field.null_allowed) return {};
  if (is_unresolved(field, node.value()))
    node.fail(fmt::format("{} is \"auto\", which nothing resolves here", field.key),
              fmt::format("{}{}", accepts(field), field.required ? "" : ", or leave it out"));
  json::Value value = checked(field, node, base_dir);
  if (!field.later) return value;
  const std::string_view harmless = field.without_effect.empty() ? field.fallback : field.without_effect;
  const json::Document document = json::parse(harmless, std::string(field.key));
  const bool null = document.root.is_null();
  if (null || value != checked(field, json::Node(document), base_dir))
    node.fail(fmt::format("{} {} is not supported yet", field.key, json::describe(node.value())),
              null ? "leave it out" : fmt::format("{}, or leave it out", harmless));
  return value;
}

}  // namespace tandem
