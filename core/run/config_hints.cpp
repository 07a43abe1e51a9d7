// The nearest valid key for one that is not known.
#include <algorithm>

#include "core/base/edit_distance.h"
#include "core/run/config_fields.h"

namespace tandem {

namespace {

/// Lower case, '-' as '_': how people's spellings differ first.
std::string folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out;
}

/// Between the folded names, of at most 64 characters each. No replacing: a missing word ("warmup_steps") is
/// nearer than another one.
size_t distance(std::string_view left, std::string_view right) {
  return edit_distance(folded(left.substr(0, 64)), folded(right.substr(0, 64)), 2);
}

std::pair<std::string_view, std::string_view> split(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == key.npos ? std::pair(std::string_view(), key)
                         : std::pair(key.substr(0, dot), key.substr(dot + 1));
}

/// Every key and every section, once.
std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (const Field& field : config_fields())
    for (std::string_view name = field.key; !name.empty(); name = split(name).first)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

struct Nearest {
  std::string_view name;
  size_t distance = std::string_view::npos;
};

/// The name whose last part is nearest to the leaf, of those that the filter lets through.
template <class Filter>
Nearest nearest(std::string_view leaf, Filter accepts) {
  Nearest best;
  for (const std::string_view name : all_names()) {
    if (!accepts(name)) continue;
    const size_t d = distance(split(name).second, leaf);
    if (d < best.distance) best = {name, d};
  }
  return best;
}

}  // namespace

std::string hint_for_unknown(std::string_view key) {
  const auto [section, leaf] = split(key);
  const size_t close = std::max<size_t>(2, std::min<size_t>(leaf.size(), 64) / 3);
  const auto sibling = nearest(leaf, [section = section](auto name) { return split(name).first == section; });
  if (sibling.distance <= close) return std::string(sibling.name);
  const auto elsewhere = nearest(leaf, [](auto) { return true; });
  if (elsewhere.distance == 0) return fmt::format("{}, where this key belongs", elsewhere.name);
  if (elsewhere.distance <= close) return std::string(elsewhere.name);
  // "num_epochs", "max_steps": a known name with something around it.
  const std::string wanted = folded(leaf);
  const auto inside = nearest(leaf, [&](auto name) {
    const auto last = split(name).second;
    return last.size() >= 5 && wanted.find(last) != wanted.npos;
  });
  if (!inside.name.empty()) return std::string(inside.name);
  return fmt::format("the nearest key is {}; docs/config.md lists all", elsewhere.name);
}

}  // namespace tandem
