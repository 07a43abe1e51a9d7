#include "core/io/hf_rope.h"

#include <cmath>

#include "core/io/hf_keys.h"

namespace tandem::hf {

namespace {

using json::Node;

constexpr std::string_view kTypes = "default, linear, llama3, yarn";
constexpr const char* kOriginal = "original_max_position_embeddings";

/// partial_rotary_factor stands beside the other rotary keys, old and new.
void check_partial(const Node& object) {
  if (const auto part = given(object, "partial_rotary_factor"); part && part->as_double() != 1)
    part->fail(fmt::format("partial_rotary_factor {} is not supported", describe(part->value())),
               "supported: 1");
}

/// "type" is the older name of "rope_type".
std::optional<Node> type_of(const Node& object) {
  const auto now = given(object, "rope_type"), legacy = given(object, "type");
  if (now && legacy && now->as_string() != legacy->as_string())
    legacy->fail(
        fmt::format("type {} and rope_type {} disagree", describe(legacy->value()), describe(now->value())),
        "keep the one that is right");
  return now ? now : legacy;
}

/// A key that this rotary type can't do without.
Node required(const Node& object, std::string_view type, std::string_view key) {
  const auto member = given(object, key);
  if (!member) object.fail(fmt::format("rope_type {} needs \"{}\"", type, key), kComparePublisher);
  return *member;
}

void read_llama3(Rope& rope, const Node& object) {
  rope.low_freq_factor = positive(required(object, "llama3", "low_freq_factor"));
  rope.high_freq_factor = positive(required(object, "llama3", "high_freq_factor"));
  rope.original_max_position = integer(required(object, "llama3", kOriginal), kMostPositions);
  if (rope.high_freq_factor <= rope.low_freq_factor)
    object.fail(fmt::format("high_freq_factor {} must be above low_freq_factor {}", rope.high_freq_factor,
                            rope.low_freq_factor),
                kComparePublisher);
}

double yarn_factor(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// Absent and 0 mean the same.
double scale_or_zero(const Node& object, std::string_view key) {
  const auto member = given(object, key);
  return member && member->value().number() != 0.0 ? positive(*member) : 0;
}

void read_yarn(Rope& rope, const Node& object, int64_t original) {
  if (!object.bool_or("truncate", true))
    object.fail("truncate false is not supported", "supported: true, the default");
  rope.original_max_position = integer_or(object, kOriginal, original, kMostPositions);
  rope.beta_fast = positive_or(object, "beta_fast", rope.beta_fast);
  rope.beta_slow = positive_or(object, "beta_slow", rope.beta_slow);
  const double over = scale_or_zero(object, "mscale"), under = scale_or_zero(object, "mscale_all_dim");
  const double usual = over != 0 && under != 0  // as transformers: only the two together count
                           ? yarn_factor(rope.factor, over) / yarn_factor(rope.factor, under)
                           : yarn_factor(rope.factor, 1);
  rope.attention_factor = positive_or(object, "attention_factor", usual);
}

/// One object of either form; theta and the original length are those given where the object
/// has none.
Rope scaled(Rope rope, const Node& object, int64_t original) {
  check_partial(object);
  rope.theta = positive_or(object, "rope_theta", rope.theta);
  const auto name = type_of(object);
  if (!name) object.fail("the key \"rope_type\" is missing", fmt::format("supported: {}", kTypes));
  const std::string& type = name->as_string();
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3" && type != "yarn")
    name->fail(fmt::format("rope_type {} is not supported", describe(name->value())),
               fmt::format("supported: {}", kTypes));
  rope.factor = positive(required(object, type, "factor"));
  rope.scaling = RopeScaling::linear;
  if (type == "llama3") rope.scaling = RopeScaling::llama3, read_llama3(rope, object);
  if (type == "yarn") rope.scaling = RopeScaling::yarn, read_yarn(rope, object, original);
  return rope;
}

/// rope_parameters: the type may be left out.
Rope from_parameters(Rope rope, const Node& object, int64_t original) {
  if (type_of(object)) return scaled(rope, object, original);
  check_partial(object);
  rope.theta = positive_or(object, "rope_theta", rope.theta);
  return rope;
}

/// rope_parameters may hold one object for each layer type, which must say the same.
Rope from_nested_parameters(const Rope& rope, const Node& object, int64_t original) {
  std::optional<Rope> common;
  for (const char* layers : {"full_attention", "sliding_attention"}) {
    const auto nested = given(object, layers);
    if (!nested) continue;
    const Rope of_type = from_parameters(rope, *nested, original);
    if (common && *common != of_type)
      nested->fail("rotary parameters that differ by layer type are not supported",
                   "supported: one set for all layers");
    common = of_type;
  }
  return common ? *common : from_parameters(rope, object, original);
}

/// Beside the other keys of a config it has a second place, which transformers prefers.
void check_original(const Node& config, const Rope& rope) {
  const auto original = given(config, kOriginal);
  const bool used = rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn;
  if (original && used && integer(*original, kMostPositions) != rope.original_max_position)
    original->fail(fmt::format("{} is {} here and {} among the rotary keys", kOriginal,
                               describe(original->value()), rope.original_max_position),
                   "make both the length of the first training");
}

}  // namespace

Rope read_rope(const Node& config, int64_t max_positions) {
  check_partial(config);
  Rope rope;
  rope.theta = positive_or(config, "rope_theta", rope.theta);
  const int64_t original = integer_or(config, kOriginal, max_positions, kMostPositions);
  auto old_form = given(config, "rope_scaling");
  if (old_form && old_form->members().empty()) old_form = {};  // as transformers: {} is like null
  if (const auto new_form = given(config, "rope_parameters")) {
    rope = from_nested_parameters(rope, *new_form, original);
    if (old_form && scaled({.theta = rope.theta}, *old_form, original) != rope)
      old_form->fail("rope_scaling and rope_parameters disagree", "keep the one that is right");
  } else if (old_form) {
    rope = scaled(rope, *old_form, original);
  }
  check_original(config, rope);
  return rope;
}

}  // namespace tandem::hf
