// Input: a byte of options, and a text. What is in a tree was in the text, within the limits, and survives
// being written.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/io/json.h"
#include "tests/fuzz/fuzzing.h"

namespace tandem {
namespace {

using json::Value;

struct Tree {
  int depth = 0;
  bool finite = true, unique = true;
  uint32_t last_line = 0;
};

void look_at(const Value& value, int depth, Tree& tree) {
  tree.last_line = std::max(tree.last_line, value.at.line);
  if (value.kind() == json::Kind::real) tree.finite &= std::isfinite(*value.number());
  if (value.is_array() || value.is_object()) tree.depth = std::max(tree.depth, ++depth);
  if (value.is_array())
    for (const Value& item : *value.array()) look_at(item, depth, tree);
  if (!value.is_object()) return;
  std::set<std::string_view> keys;
  for (const json::Member& member : *value.object()) {
    tree.unique &= keys.insert(member.key).second;
    look_at(member.value, depth, tree);
  }
}

void require_survives_writing(const Value& value) {
  for (const int indent : {-1, 2}) {
    const std::string text = json::dump(value, indent);
    require(indent >= 0 || text.find('\n') == std::string::npos, "one line is one line");
    require(json::parse(text, "again", {.max_depth = 1000}).root == value, "a tree is written as it is");
  }
}

/// Repeated keys make the difference between throwing and collecting errors about them, and nothing else
/// does.
void require_same_when_collected(std::string_view text, json::Options options, const Value& root) {
  std::vector<Error> duplicates;
  options.duplicates = &duplicates;
  require(json::parse(text, "fuzz", options).root == root, "a tree is the same whether errors are collected");
  require(duplicates.empty(), "a repeated key is refused");
}

void try_text(std::string_view text, uint8_t choice) {
  std::vector<Error> duplicates;
  json::Options options{.status = (choice & 1) != 0 ? Status::failed : Status::usage,
                        .comments = (choice & 2) != 0,
                        .non_finite = (choice & 4) != 0,
                        .bom = (choice & 8) != 0,
                        .max_bytes = (choice & 16) != 0 ? size_t{64} : size_t{1} << 20,
                        .max_depth = (choice & 32) != 0 ? 4 : 64,
                        .duplicates = (choice & 64) != 0 ? &duplicates : nullptr};
  json::Document document;
  if (!accepts([&] { document = json::parse(text, "fuzz", options); })) return;
  Tree tree;
  look_at(document.root, 0, tree);
  require(text.size() <= options.max_bytes, "the limit of the size holds");
  require(tree.depth <= options.max_depth, "the limit of the depth holds");
  require(tree.unique, "a key is in an object once");
  require(tree.finite || options.non_finite, "NaN and infinities are there only where they are accepted");
  require(tree.last_line <= 1 + static_cast<uint32_t>(std::ranges::count(text, '\n')),
          "places are in the text");
  if (!tree.finite) return;  // NaN equals nothing, itself included
  require_survives_writing(document.root);
  if (options.duplicates == nullptr) require_same_when_collected(text, options, document.root);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::Input input(data, size);
  const auto choice = input.take<uint8_t>();
  tandem::try_text(input.rest(), choice);
  return 0;
}
