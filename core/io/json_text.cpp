// JSON text in and out: the only unit of the JSON layer that sees nlohmann-json, which is slow to compile.
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_map>

#include "core/io/json.h"

namespace tandem::json {

namespace {

constexpr std::string_view kBom = "\xEF\xBB\xBF";
constexpr std::string_view kNonFinite[] = {"NaN", "Infinity", "-Infinity"};

/// The non-finite literal at the front of the text, or empty.
std::string_view non_finite_at(std::string_view text) {
  for (const std::string_view literal : kNonFinite)
    if (text.starts_with(literal)) return literal;
  return {};
}

/// One past the string literal that begins at `begin`; at a line's end where the closing quote is missing.
size_t string_end(std::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
    else if (text[i] == '\n')
      return i;
  }
  return text.size();
}

/// The text in plain JSON at the same offsets: comments are blanked, non-finite literals are zeros.
std::string plain_json(std::string_view text, const Options& options) {
  std::string plain(text);
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      i = string_end(text, i);
    } else if (options.comments && text.substr(i, 2) == "//") {
      for (; i < text.size() && text[i] != '\n'; ++i) plain[i] = ' ';
    } else if (const auto literal = non_finite_at(text.substr(i)); options.non_finite && !literal.empty()) {
      plain.replace(i, literal.size(), literal.size(), ' ');
      plain[i] = '0';
      i += literal.size();
    } else {
      ++i;
    }
  }
  return plain;
}

/// Walks the tokens of a JSON text in step with the parser, whose events don't say where they are.
class Cursor {
 public:
  explicit Cursor(std::string_view text, size_t offset = 0) : text_(text) {
    while (offset_ < std::min(offset, text_.size())) step();
  }
  /// Moves to the next token: past blanks, commas and colons.
  void find_token() {
    constexpr std::string_view kBetween = " \t\r\n,:";
    while (offset_ < text_.size() && kBetween.find(text_[offset_]) != kBetween.npos) step();
  }
  /// Moves past the token that the cursor is on.
  void pass_token() {
    const size_t end = token_end();
    while (offset_ < end) step();
  }
  [[nodiscard]] size_t offset() const { return offset_; }
  [[nodiscard]] Position position() const { return {line_, column_, 0}; }

 private:
  [[nodiscard]] size_t token_end() const {
    if (offset_ >= text_.size()) return offset_;
    if (text_[offset_] == '"') return string_end(text_, offset_);
    if (std::string_view("{}[]").find(text_[offset_]) != std::string_view::npos) return offset_ + 1;
    return std::min(text_.find_first_of(" \t\r\n,:{}[]\"", offset_), text_.size());
  }
  void step() {
    const auto byte = static_cast<unsigned char>(text_[offset_++]);
    if (byte == '\n') {
      ++line_;
      column_ = 1;
    } else if ((text_.size() == offset_) || (static_cast<unsigned char>(text_[offset_]) & 0xC0) != 0x80) {
      ++column_;  // the byte was the last one of its character
    }
  }
  std::string_view text_;
  size_t offset_ = 0;
  uint32_t line_ = 1, column_ = 1;
};

/// Receives nlohmann's events and builds the tree. A false return stops the parser.
class Builder {
 public:
  Builder(std::string_view original, std::string_view plain, Document& document, const Options& options)
      : original_(original), plain_(plain), cursor_(plain), document_(document), options_(options) {}

  bool null() { return add({}); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Object{}); }
  bool start_array(size_t) { return open(Array{}); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name);
  bool parse_error(size_t read, const std::string&, const nlohmann::detail::exception& error);

 private:
  struct Frame {
    Value container;
    std::string key = {};  ///< of the member to come
    Position key_at = {};
    bool repeated = false;  ///< that key was there before: its value is dropped
    std::unordered_map<std::string, Position> seen = {};
  };
  bool add(Value value);
  bool open(Value container);
  bool close();
  void store(Value value);
  /// Moves past the next token and returns where it began.
  Position token() {
    cursor_.find_token();
    const Position at = cursor_.position();
    cursor_.pass_token();
    return at;
  }
  [[nodiscard]] std::string path() const;
  [[noreturn]] void fail(std::string what, Position at, std::string hint = {}) const {
    throw Error(options_.status, std::move(what), document_.where(at), std::move(hint));
  }

  std::string_view original_, plain_;  // of one length
  Cursor cursor_;
  Document& document_;
  const Options& options_;
  std::vector<Frame> frames_;
};

std::string Builder::path() const {
  std::string path;
  for (const Frame& frame : frames_) {
    if (const Array* array = frame.container.array())
      path += fmt::format("[{}]", array->size());
    else
      path = join_path(path, frame.key);
  }
  return path;
}

void Builder::store(Value value) {
  if (frames_.empty()) {
    document_.root = std::move(value);
  } else if (Frame& parent = frames_.back(); parent.container.is_array()) {
    parent.container.push(std::move(value));
  } else if (!parent.repeated) {
    parent.container.object()->push_back({std::move(parent.key), std::move(value), parent.key_at});
  }
}

bool Builder::add(Value value) {
  cursor_.find_token();
  const auto literal =
      value.kind() == Kind::integer ? non_finite_at(original_.substr(cursor_.offset())) : std::string_view();
  if (!literal.empty()) {
    const double size =
        literal == "NaN" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    value = literal[0] == '-' ? -size : size;
  }
  value.at = token();
  store(std::move(value));
  return true;
}

bool Builder::open(Value container) {
  container.at = token();
  if (frames_.size() >= static_cast<size_t>(options_.max_depth))
    fail(fmt::format("arrays and objects are nested deeper than {} levels", options_.max_depth),
         container.at);
  frames_.push_back({.container = std::move(container)});
  return true;
}

bool Builder::close() {
  token();
  Value container = std::move(frames_.back().container);
  frames_.pop_back();
  store(std::move(container));
  return true;
}

bool Builder::key(std::string& name) {
  Frame& frame = frames_.back();
  frame.key_at = token();
  frame.key = name;
  const auto [first, fresh] = frame.seen.emplace(std::move(name), frame.key_at);
  frame.repeated = !fresh;
  if (fresh) return true;
  Error error(options_.status,
              fmt::format("the key \"{}\" is there twice (first at {}:{})", printable(frame.key),
                          first->second.line, first->second.column),
              document_.where(frame.key_at, path()), "keep one of them");
  if (!options_.duplicates) throw error;
  options_.duplicates->push_back(std::move(error));
  return true;
}

bool Builder::parse_error(size_t read, const std::string&, const nlohmann::detail::exception& error) {
  // The parser has read to the end of the token that it refuses; the cursor is behind the last good one.
  const size_t offset = read > 0 ? read - 1 : 0;
  cursor_.find_token();
  if (cursor_.offset() > offset) cursor_ = Cursor(plain_, offset);
  const std::string_view rest = original_.substr(std::min(cursor_.offset(), original_.size()));
  if (const auto literal = non_finite_at(rest); !literal.empty())
    fail(fmt::format("{} is not a JSON number", literal), cursor_.position());
  const auto before = original_.substr(0, cursor_.offset()).find_last_not_of(" \t\r\n");
  if (!rest.empty() && (rest[0] == '}' || rest[0] == ']') && before != original_.npos &&
      original_[before] == ',')
    fail(fmt::format("a comma stands before '{}'", rest[0]), cursor_.position(), "remove the trailing comma");

  std::string reason = error.what();  // "[json.exception...] parse error at line 1, column 2: REASON"
  if (const auto colon = reason.find(": "); colon != reason.npos && reason.find("column") < colon)
    reason.erase(0, colon + 2);
  else if (const auto bracket = reason.find("] "); bracket != reason.npos)
    reason.erase(0, bracket + 2);
  if (const auto last = reason.find("; last read"); last != reason.npos) reason.erase(last);
  fail("not valid JSON: " + printable(reason), cursor_.position());
}

}  // namespace

Document parse(std::string_view text, std::string name, const Options& options) {
  Document document{.name = std::move(name), .status = options.status, .root = {}};
  CHECK(text.size() <= options.max_bytes, options.status,
        fmt::format("{} bytes of JSON are more than the limit of {}", text.size(), options.max_bytes),
        document.name);
  if (text.starts_with(kBom)) {
    CHECK(options.bom, options.status, "the file begins with a byte-order mark (BOM)",
          document.where({1, 1, 0}), "save it as UTF-8 without BOM");
    text.remove_prefix(kBom.size());
  }
  CHECK(text.find_first_not_of(" \t\r\n") != text.npos, options.status, "the file is empty", document.name);
  const std::string plain = plain_json(text, options);
  Builder builder(text, plain, document, options);
  const bool done = nlohmann::json::sax_parse(plain, &builder);
  ASSERT(done, "the JSON parser stopped without an error");
  return document;
}

Document parse_file(const std::filesystem::path& path, const Options& options) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  CHECK(std::filesystem::exists(status), options.status, "the file does not exist", path.string());
  CHECK(!std::filesystem::is_directory(status), options.status, "this is a folder, not a file",
        path.string());
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // One byte beyond the limit is enough to see that it is passed.
  for (char buffer[65536]; text.size() <= options.max_bytes && file;) {
    file.read(buffer, sizeof buffer);
    text.append(buffer, static_cast<size_t>(file.gcount()));
  }
  CHECK(file.eof() || text.size() > options.max_bytes, options.status, "the file cannot be read",
        path.string());
  return parse(text, path.string(), options);
}

namespace {

std::string real_text(double value) {
  ASSERT(std::isfinite(value), "JSON has no text for {}", value);
  std::string text = fmt::format("{}", value);  // the shortest that reads back the same
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string string_text(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append(std::string& out, const Value& value, int indent, int level);

/// The items of an array or object, each written by `item`, between its brackets.
template <class Items, class Write>
void append_all(std::string& out, const Items& items, std::string_view brackets, int indent, int level,
                Write item) {
  const auto line = [&](int depth) {
    if (indent >= 0) out.append("\n").append(static_cast<size_t>(indent * depth), ' ');
  };
  out += brackets[0];
  for (const auto& each : items) {
    if (&each != items.data()) out += ',';
    line(level + 1);
    item(each);
  }
  if (!items.empty()) line(level);
  out += brackets[1];
}

void append(std::string& out, const Value& value, int indent, int level) {
  switch (value.kind()) {
    case Kind::null:
      out += "null";
      break;
    case Kind::boolean:
      out += *value.boolean() ? "true" : "false";
      break;
    case Kind::integer:
      out += value.u64() ? std::to_string(*value.u64()) : std::to_string(*value.i64());
      break;
    case Kind::real:
      out += real_text(*value.number());
      break;
    case Kind::string:
      out += string_text(*value.string());
      break;
    case Kind::array:
      append_all(out, *value.array(), "[]", indent, level,
                 [&](const Value& item) { append(out, item, indent, level + 1); });
      break;
    case Kind::object:
      append_all(out, *value.object(), "{}", indent, level, [&](const Member& member) {
        out += string_text(member.key) + (indent >= 0 ? ": " : ":");
        append(out, member.value, indent, level + 1);
      });
      break;
  }
}

}  // namespace

std::string dump(const Value& value, int indent) {
  std::string out;
  append(out, value, indent, 0);
  return out;
}

}  // namespace tandem::json
