#include "offload/hardware.h"

#include <algorithm>
#include <cmath>

#include "core/base/edit_distance.h"
#include "core/io/json.h"
#include "core/run/byte_size.h"

namespace tandem {

namespace {

/// A figure of a profile: its key, where it goes, and what is not absurd.
struct Figure {
  std::string_view key;
  double HardwareProfile::*field;
  double low, high;
  bool bytes = false;
};
constexpr Figure kFigures[] = {
    {"device.memory", &HardwareProfile::device_memory, 1e9, 1e13, true},
    {"device.matrix_tflops_16bit", &HardwareProfile::matrix_16bit, 0.01, 1e5},
    {"device.matrix_tflops_fp32", &HardwareProfile::matrix_fp32, 0.01, 1e5},
    {"device.memory_gb_s", &HardwareProfile::device_gb_s, 1, 1e5},
    {"device.launch_us", &HardwareProfile::launch_us, 0, 1e3},
    {"device.shortest_kernel_us", &HardwareProfile::shortest_kernel_us, 0, 1e3},
    {"link.d2h_gb_s", &HardwareProfile::d2h_gb_s, 0.1, 1e4},
    {"link.h2d_gb_s", &HardwareProfile::h2d_gb_s, 0.1, 1e4},
    {"link.both_gb_s", &HardwareProfile::both_gb_s, 0.1, 2e4},
    {"host.memory", &HardwareProfile::host_memory, 1e9, 1e14, true},
    {"host.dram_gb_s", &HardwareProfile::dram_gb_s, 1, 1e4},
};

double read_figure(const Figure& figure, const json::Node& node) {
  double value = 0;
  if (figure.bytes && node.value().is_string()) {
    const auto bytes = parse_byte_size(node.as_string());
    if (!bytes) node.fail(fmt::format("\"{}\" is no size", printable(node.as_string())), "\"24GiB\"");
    value = static_cast<double>(*bytes);
  } else {
    value = node.as_double();
  }
  if (!std::isfinite(value) || value < figure.low || value > figure.high)
    node.fail(fmt::format("{} is {}, which no machine has", figure.key, value),
              fmt::format("{} to {}", figure.low, figure.high));
  return value;
}

std::string nearest(std::string_view name, const auto& names) {
  std::string best;
  size_t least = SIZE_MAX;
  for (const std::string_view other : names) {
    const size_t distance = other.find(name) != other.npos ? 0 : edit_distance(name, other);
    if (distance < least) best = other, least = distance;
  }
  return best;
}

std::vector<std::string_view> known_keys() {
  std::vector<std::string_view> keys{"name", "sources"};
  for (const Figure& figure : kFigures) keys.push_back(figure.key);
  return keys;
}

/// Refuses what nobody reads: a misspelt figure must not go unseen.
void refuse_unknown(const json::Node& root) {
  const std::vector<std::string_view> keys = known_keys();
  const auto check = [&](const std::string& key, const json::Node& node) {
    if (std::ranges::find(keys, key) == keys.end())
      node.fail(fmt::format("unknown key \"{}\"", printable(key)), fmt::format("\"{}\"", nearest(key, keys)));
  };
  for (const auto& [section, node] : root.members()) {
    if (section == "sources" || !node.value().is_object()) {
      check(std::string(section), node);
      continue;
    }
    for (const auto& [key, figure] : node.members()) check(json::join_path(section, key), figure);
  }
}

const json::Options kReading{.status = Status::usage, .comments = true, .max_bytes = 1 << 20};

HardwareProfile profile_of(const json::Document& document) {
  const json::Node root(document), sources = root.at("sources");
  refuse_unknown(root);
  HardwareProfile profile;
  profile.name = root.at("name").as_string();
  for (const Figure& figure : kFigures) {
    const size_t dot = figure.key.find('.');
    profile.*figure.field =
        read_figure(figure, root.at(figure.key.substr(0, dot)).at(figure.key.substr(dot + 1)));
    const auto source = sources.find(figure.key);
    if (!source || source->as_string().empty())
      sources.fail(fmt::format("{} has no source", figure.key),
                   fmt::format("\"{}\": where the figure is from", figure.key));
  }
  if (profile.both_gb_s > profile.d2h_gb_s + profile.h2d_gb_s)
    root.at("link").at("both_gb_s").fail("both ways together can't be faster than each of them alone");
  return profile;
}

}  // namespace

HardwareProfile parse_hardware(std::string_view text, const std::string& file) {
  return profile_of(json::parse(text, file, kReading));
}

HardwareProfile load_hardware(const std::string& name_or_path) {
  if (name_or_path.ends_with(".json")) return profile_of(json::parse_file(name_or_path, kReading));
  std::vector<std::string_view> names;
  std::string all;
  for (const BuiltInProfile& profile : built_in_profiles()) {
    if (profile.name == name_or_path) return parse_hardware(profile.text, std::string(profile.name));
    names.push_back(profile.name);
    all += (all.empty() ? "" : ", ") + std::string(profile.name);
  }
  throw Error(
      Status::usage, fmt::format("no hardware profile \"{}\"", printable(name_or_path)), "--hardware",
      fmt::format("\"{}\", or a file that ends in .json; there are {}", nearest(name_or_path, names), all));
}

}  // namespace tandem
