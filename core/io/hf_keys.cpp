#include "core/io/hf_keys.h"

#include <cmath>

namespace tandem::hf {

using json::Node;

std::optional<Node> given(const Node& object, std::string_view key) {
  const auto member = object.find(key);
  return member && !member->is_null() ? member : std::nullopt;
}

int64_t integer(const Node& node, int64_t most) {
  const auto value = node.value().whole_i64();
  if (!value || *value < 1 || *value > most)
    node.fail(fmt::format("{} must be an integer from 1 to {}, but is {}", node.path(), most,
                          describe(node.value())),
              kComparePublisher);
  return *value;
}

int64_t integer_or(const Node& object, std::string_view key, int64_t fallback, int64_t most) {
  const auto member = given(object, key);
  return member ? integer(*member, most) : fallback;
}

double positive(const Node& node) {
  const auto value = node.value().number();
  if (!value || !std::isfinite(*value) || *value <= 0)
    node.fail(fmt::format("{} must be a number above 0, but is {}", node.path(), describe(node.value())),
              kComparePublisher);
  return *value;
}

double positive_or(const Node& object, std::string_view key, double fallback) {
  const auto member = given(object, key);
  return member ? positive(*member) : fallback;
}

}  // namespace tandem::hf
