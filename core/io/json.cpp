#include "core/io/json.h"

#include <algorithm>
#include <cmath>

namespace tandem::json {

namespace {

constexpr double kExactDouble = 9007199254740992.0;  // 2^53

/// The integer that a whole, exactly representable real stands for.
std::optional<int64_t> whole(const Value& value) {
  if (value.kind() != Kind::real) return std::nullopt;
  const double real = *value.number();
  if (!(std::fabs(real) <= kExactDouble) || real != std::floor(real)) return std::nullopt;
  return static_cast<int64_t>(real);
}

}  // namespace

Value::Value() = default;
Value::Value(std::nullptr_t) {}
Value::Value(double value) : data_(value) {}
Value::Value(std::string value) : data_(std::move(value)) {}
Value::Value(std::string_view value) : data_(std::string(value)) {}
Value::Value(const char* value) : data_(std::string(value)) {}
Value::Value(Array value) : data_(std::move(value)) {}
Value::Value(Object value) : data_(std::move(value)) {}

Kind Value::kind() const {
  constexpr Kind kinds[] = {Kind::null, Kind::boolean, Kind::integer, Kind::integer,
                            Kind::real, Kind::string,  Kind::array,   Kind::object};
  return kinds[data_.index()];
}

std::optional<bool> Value::boolean() const {
  const bool* value = std::get_if<bool>(&data_);
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<int64_t> Value::i64() const {
  if (const auto* negative = std::get_if<int64_t>(&data_)) return *negative;
  const auto* positive = std::get_if<uint64_t>(&data_);
  if (!positive || *positive > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return static_cast<int64_t>(*positive);
}

std::optional<uint64_t> Value::u64() const {
  const auto* value = std::get_if<uint64_t>(&data_);
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<int64_t> Value::whole_i64() const {
  if (const auto exact = i64()) return exact;
  return whole(*this);
}

std::optional<uint64_t> Value::whole_u64() const {
  if (const auto exact = u64()) return exact;
  const auto real = whole(*this);
  return real && *real >= 0 ? std::optional(static_cast<uint64_t>(*real)) : std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* real = std::get_if<double>(&data_)) return *real;
  if (const auto* negative = std::get_if<int64_t>(&data_)) return static_cast<double>(*negative);
  if (const auto* positive = std::get_if<uint64_t>(&data_)) return static_cast<double>(*positive);
  return std::nullopt;
}

const Value* Value::find(std::string_view key) const {
  const Object* members = object();
  if (!members) return nullptr;
  for (const Member& member : *members)
    if (member.key == key) return &member.value;
  return nullptr;
}

Value* Value::find(std::string_view key) {
  return const_cast<Value*>(static_cast<const Value*>(this)->find(key));
}

Value& Value::set(std::string key, Value value) {
  if (is_null()) data_ = Object{};
  Object* members = object();
  ASSERT(members, "set(\"{}\") on a value that is no object", key);
  if (Value* old = find(key)) return *old = std::move(value);
  members->push_back({std::move(key), std::move(value)});
  return members->back().value;
}

void Value::push(Value value) {
  if (is_null()) data_ = Array{};
  ASSERT(array(), "push on a value that is no array");
  array()->push_back(std::move(value));
}

// Needed by the variant's equality of objects, which operator== below never reaches.
bool operator==(const Member& a, const Member& b) { return a.key == b.key && a.value == b.value; }

bool operator==(const Value& a, const Value& b) {
  const Object* left = a.object();
  const Object* right = b.object();
  if (!left || !right) return !left && !right && a.data_ == b.data_;
  return left->size() == right->size() && std::all_of(left->begin(), left->end(), [&](const Member& member) {
           const Value* other = b.find(member.key);
           return other && member.value == *other;
         });
}

std::string describe(const Value& value) {
  switch (value.kind()) {
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
    case Kind::string:
      return '"' + printable(*value.string()) + '"';
    case Kind::real:
      if (!std::isfinite(*value.number())) return "not finite";
      return dump(value);
    default:
      return dump(value);
  }
}

std::string Document::where(Position at, std::string_view path) const {
  std::string text = at.source > 0 ? sources.at(at.source - 1) : name;
  if (at.source == 0 && at.line > 0) text += fmt::format(":{}:{}", at.line, at.column);
  const bool said = at.source > 0 && text.ends_with(fmt::format(" {}", path));
  return path.empty() || said ? text : fmt::format("{} ({})", text, printable(path));
}

std::string join_path(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

void Node::fail(std::string what, std::string hint) const {
  throw Error(document_->status, std::move(what), where(), std::move(hint));
}

void Node::expected(std::string_view what) const {
  fail(fmt::format("{} must be {}, but is {}", name(), what, describe(*value_)));
}

bool Node::as_bool() const {
  const auto value = value_->boolean();
  if (!value) expected("true or false");
  return *value;
}

int64_t Node::as_i64(int64_t low, int64_t high) const {
  const auto value = value_->i64();
  if (!value) expected("an integer");
  if (*value < low) expected(fmt::format("at least {}", low));
  if (*value > high) expected(fmt::format("at most {}", high));
  return *value;
}

uint64_t Node::as_u64() const {
  const auto value = value_->u64();
  if (!value) expected("an integer from 0 on");
  return *value;
}

double Node::as_double() const {
  const auto value = value_->number();
  if (!value) expected("a number");
  return *value;
}

const std::string& Node::as_string() const {
  const auto* value = value_->string();
  if (!value) expected("a string");
  return *value;
}

std::vector<Node> Node::items() const {
  const Array* array = value_->array();
  if (!array) expected("an array");
  std::vector<Node> nodes;
  nodes.reserve(array->size());
  for (const Value& item : *array)
    nodes.emplace_back(*document_, item, fmt::format("{}[{}]", path_, nodes.size()));
  return nodes;
}

std::vector<std::pair<std::string_view, Node>> Node::members() const {
  const Object* object = value_->object();
  if (!object) expected("an object");
  std::vector<std::pair<std::string_view, Node>> nodes;
  nodes.reserve(object->size());
  for (const Member& member : *object)
    nodes.emplace_back(member.key, Node(*document_, member.value, join_path(path_, member.key)));
  return nodes;
}

std::optional<Node> Node::find(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const Value* member = value_->find(key);
  return member ? std::optional(Node(*document_, *member, join_path(path_, key))) : std::nullopt;
}

Node Node::at(std::string_view key) const {
  const auto member = find(key);
  if (!member) fail(fmt::format("{} has no \"{}\"", name(), printable(key)));
  return *member;
}

std::optional<Node> Node::present(std::string_view key) const {
  const auto member = find(key);
  return member && !member->is_null() ? member : std::nullopt;
}

bool Node::bool_or(std::string_view key, bool fallback) const {
  const auto member = present(key);
  return member ? member->as_bool() : fallback;
}

int64_t Node::i64_or(std::string_view key, int64_t fallback, int64_t low, int64_t high) const {
  const auto member = present(key);
  return member ? member->as_i64(low, high) : fallback;
}

double Node::double_or(std::string_view key, double fallback) const {
  const auto member = present(key);
  return member ? member->as_double() : fallback;
}

std::string Node::string_or(std::string_view key, std::string fallback) const {
  const auto member = present(key);
  return member ? member->as_string() : std::move(fallback);
}

}  // namespace tandem::json
