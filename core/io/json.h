#pragma once
// JSON as a tree of our own: integers exact, keys in order, every value and key with its place in the text.
//
//   json::Document document = json::parse_file(path, {.status = Status::failed});
//   json::Node root(document);
//   int64_t hidden = root.at("hidden_size").as_i64();            // Error with FILE:LINE:COL (hidden_size)
//   otherwise double eps = root.double_or("rms_norm_eps", 1e-6);           // absent or null: the fallback
//   for (const json::Node& shard : root.at("shards").items()) ...
//
//   json::Value out = json::Object{{"step", 7}, {"loss", 2.5}};
//   out.set("name", "x");
//   file << json::dump(out, 2);                                  // indented; json::dump(out) is one line
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"

namespace tandem::json {

/// A place in the text: line and column from 1, columns in characters; line 0 = not from a text.
/// source 0 is the document's own text, k is Document::sources[k - 1].
struct Position {
  uint32_t line = 0, column = 0, source = 0;
};

enum class Kind : uint8_t { null, boolean, integer, real, string, array, object };

class Value;
struct Member;
using Array = std::vector<Value>;
using Object = std::vector<Member>;  ///< in the order of the text

/// One JSON value. Equality ignores places and the order of keys; 1 and 1.0 differ.
class Value {
 public:
  // Without bodies: clang would want Member to be complete here.
  Value();  ///< null
  Value(std::nullptr_t);
  template <std::same_as<bool> T>
  Value(T value) : data_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value);
  Value(double value);
  Value(std::string value);
  Value(std::string_view value);
  Value(const char* value);
  Value(Array value);
  Value(Object value);

  [[nodiscard]] Kind kind() const;
  [[nodiscard]] bool is_null() const { return kind() == Kind::null; }
  [[nodiscard]] bool is_object() const { return kind() == Kind::object; }
  [[nodiscard]] bool is_array() const { return kind() == Kind::array; }
  [[nodiscard]] bool is_string() const { return kind() == Kind::string; }

  // What the value is, or nothing when it is of another kind. Integers never pass through double.
  [[nodiscard]] std::optional<bool> boolean() const;
  [[nodiscard]] std::optional<int64_t> i64() const;  ///< integers in range only
  [[nodiscard]] std::optional<uint64_t> u64() const;
  /// As i64 and u64, and reals that are whole and at most 2^53 in size, where a double is still exact: 5e8.
  [[nodiscard]] std::optional<int64_t> whole_i64() const;
  [[nodiscard]] std::optional<uint64_t> whole_u64() const;
  [[nodiscard]] std::optional<double> number() const;  ///< integer (rounded) or real
  [[nodiscard]] const std::string* string() const { return std::get_if<std::string>(&data_); }
  [[nodiscard]] const Array* array() const { return std::get_if<Array>(&data_); }
  [[nodiscard]] const Object* object() const { return std::get_if<Object>(&data_); }
  [[nodiscard]] Array* array() { return std::get_if<Array>(&data_); }
  [[nodiscard]] Object* object() { return std::get_if<Object>(&data_); }

  /// The member of that key; nullptr if there is none or this is no object.
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] Value* find(std::string_view key);
  /// Replaces or appends; a null becomes an object first. Returns the stored value.
  Value& set(std::string key, Value value);
  /// Appends; a null becomes an array first.
  void push(Value value);

  friend bool operator==(const Value& a, const Value& b);

  Position at;

 private:
  // Integers: uint64_t from 0 on, int64_t below.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> data_;
};

struct Member {
  std::string key;
  Value value;
  Position at = {};  ///< of the key
};

template <std::integral T>
requires(!std::same_as<T, bool>) Value::Value(T value) {
  if (value < 0)
    data_ = static_cast<int64_t>(value);
  else
    data_ = static_cast<uint64_t>(value);
}

/// The value for an error message: scalars as JSON, cut at 200 characters; "an array", "an object".
std::string describe(const Value& value);

/// A parsed text, with what an error about it needs.
struct Document {
  std::string name;               ///< the file, as the user named it
  Status status = Status::usage;  ///< of the errors about its content
  Value root;
  std::vector<std::string> sources = {};  ///< other places that values came from, such as "--set a.b"
  /// "FILE:LINE:COL (path)"; without what is unknown or empty.
  [[nodiscard]] std::string where(Position at, std::string_view path = {}) const;
};

struct Options {
  Status status = Status::usage;  ///< of every error
  bool comments = false;          ///< accept // comments
  bool non_finite = false;        ///< accept NaN, Infinity, -Infinity (files written by Python)
  bool bom = false;               ///< accept a leading byte-order mark
  size_t max_bytes = 128u << 20;  ///< a longer text is refused
  int max_depth = 64;             ///< of nested arrays and objects
  std::vector<Error>* duplicates =
      nullptr;  ///< collects errors on repeated keys (the first one counts) instead of throwing
};

/// Parses one JSON value. Errors carry options.status and NAME:LINE:COL: syntax, repeated keys, limits.
Document parse(std::string_view text, std::string name, const Options& options = {});
/// The same from a file. One that is missing, no file or unreadable is an Error of options.status, too.
Document parse_file(const std::filesystem::path& path, const Options& options = {});

/// indent < 0: one line without spaces, for JSON lines; else indented by so many spaces per level.
/// Reals are the shortest text that reads back as the same double. Asserts that they are finite.
std::string dump(const Value& value, int indent = -1);

/// A value together with its document and path: reading with errors that say where. The document must outlive
/// it. Every as_*, at, items and members throws Error(document.status) when the value is not like that.
class Node {
 public:
  explicit Node(const Document& document, std::string path = {})
      : document_(&document), value_(&document.root), path_(std::move(path)) {}
  Node(const Document& document, const Value& value, std::string path)
      : document_(&document), value_(&value), path_(std::move(path)) {}
  explicit Node(Document&&) = delete;

  [[nodiscard]] const Value& value() const { return *value_; }
  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  [[nodiscard]] const std::string& path() const { return path_; }  ///< "a.b[2]"; empty at the top
  [[nodiscard]] std::string where() const { return document_->where(value_->at, path_); }
  [[noreturn]] void fail(std::string what, std::string hint = {}) const;

  [[nodiscard]] bool as_bool() const;
  /// An integer in low .. high, written as one (8.0 and 8e0 are not).
  [[nodiscard]] int64_t as_i64(int64_t low = std::numeric_limits<int64_t>::min(),
                               int64_t high = std::numeric_limits<int64_t>::max()) const;
  [[nodiscard]] uint64_t as_u64() const;
  [[nodiscard]] double as_double() const;
  [[nodiscard]] const std::string& as_string() const;
  [[nodiscard]] std::vector<Node> items() const;                                 ///< of an array
  [[nodiscard]] std::vector<std::pair<std::string_view, Node>> members() const;  ///< of an object

  [[nodiscard]] std::optional<Node> find(std::string_view key) const;  ///< nothing if absent; null is there
  [[nodiscard]] Node at(std::string_view key) const;                   ///< Error if absent

  // The member, or the fallback where it is absent or null.
  [[nodiscard]] bool bool_or(std::string_view key, bool fallback) const;
  [[nodiscard]] int64_t i64_or(std::string_view key, int64_t fallback,
                               int64_t low = std::numeric_limits<int64_t>::min(),
                               int64_t high = std::numeric_limits<int64_t>::max()) const;
  [[nodiscard]] double double_or(std::string_view key, double fallback) const;
  [[nodiscard]] std::string string_or(std::string_view key, std::string fallback) const;

 private:
  [[nodiscard]] std::optional<Node> present(std::string_view key) const;
  [[noreturn]] void expected(std::string_view what) const;
  [[nodiscard]] std::string name() const { return path_.empty() ? "the top level" : printable(path_); }
  const Document* document_;
  const Value* value_;
  std::string path_;
};

/// "a.b" from "a" and "b".
std::string join_path(std::string_view parent, std::string_view key);

}  // namespace tandem::json
