#include "core/io/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/base/error.h"

namespace tandem {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";
constexpr const char* kBadFile = "the file is damaged or was written wrongly: download or save it again";

struct Type {
  std::string_view name;
  uint64_t bits;
};
/// All types of the format, in the order that writers sort by (descending).
constexpr Type kTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

const Type* type_of(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &Type::name);
  return found == std::end(kTypes) ? nullptr : found;
}

/// Reads the header as events, not as a tree: a header may have 100 MB, and its tree would be several times
/// that. Throws at the first thing that the format does not allow. The shape of the document: level 1 holds
/// tensor names, level 2 one tensor's fields (or the metadata), level 3 its lists.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& path) : header_(header), path_(path) {}

  bool null() override { return in_name_ == Name::metadata && depth_ == 1 ? true : scalar("null"); }
  bool boolean(bool) override { return scalar("true or false"); }
  bool number_integer(number_integer_t value) override {
    return scalar(value == 0 ? "-0" : std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3 || field_ == Field::other || field_ == Field::dtype) return scalar(std::to_string(value));
    numbers().push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_name_ == Name::metadata) {
      const bool added = header_.metadata.emplace(key_, value).second;
      expect(added, "the metadata key \"{}\" comes twice", printable(key_));
    } else if (depth_ == 2 && field_ == Field::dtype) {
      header_.entries.back().dtype = value;
    } else {
      return scalar("a string");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (depth_ == 1) return top_key(name);
    if (depth_ != 2) return true;
    key_ = name;
    if (in_name_ == Name::metadata) return true;
    field_ = name == "dtype"          ? Field::dtype
             : name == "shape"        ? Field::shape
             : name == "data_offsets" ? Field::offsets
                                      : Field::other;
    if (field_ == Field::other) return true;
    expect(!seen_[static_cast<size_t>(field_)], "the key \"{}\" comes twice", name);
    seen_[static_cast<size_t>(field_)] = true;
    return true;
  }

  bool start_object(std::size_t) override {
    enter();
    expect(depth_ <= 2 || ignored(), "the header has an object for \"{}\"", printable(key_));
    return true;
  }

  bool start_array(std::size_t) override {
    const bool list = depth_ == 2 && in_name_ == Name::tensor && field_ != Field::dtype;
    expect(list || ignored(), "the header has a list where none belongs");
    enter();
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1 && in_name_ == Name::tensor) finish_tensor();
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    throw Error(Status::failed, fmt::format("the header is no valid JSON at byte {}", position + 7),
                printable(path_), kBadFile);
  }

 private:
  enum class Name : uint8_t { none, tensor, metadata };
  enum class Field : uint8_t { dtype, shape, offsets, other };
  static constexpr int kDeepest = 128;

  template <class... Args>
  void expect(bool condition, fmt::format_string<Args...> what, Args&&... args) const {
    if (condition) return;
    throw Error(Status::failed, fmt::format(what, std::forward<Args>(args)...), where(), kBadFile);
  }
  std::string where() const {
    return in_name_ == Name::tensor ? place_of(path_, header_.entries.back().name) : printable(path_);
  }
  /// Inside the value of a key that the format does not know.
  bool ignored() const { return in_name_ == Name::tensor && depth_ >= 2 && field_ == Field::other; }

  void enter() {
    ++depth_;
    expect(depth_ <= kDeepest, "the header nests deeper than {} levels", kDeepest);
  }

  bool scalar(const std::string& value) {
    expect(ignored(), "the header has {} where {} belongs", printable(value),
           depth_ >= 3                  ? "an unsigned integer"
           : depth_ == 1                ? "a tensor's description"
           : depth_ == 0                ? "an object"
           : in_name_ == Name::metadata ? "a string of metadata"
           : field_ == Field::dtype     ? "the name of a dtype"
                                        : "a list");
    return true;
  }

  bool top_key(const std::string& name) {
    if (name == kMetadata) {
      in_name_ = Name::none;
      expect(!had_metadata_, "the key \"__metadata__\" comes twice");
      had_metadata_ = true;
      in_name_ = Name::metadata;
      return true;
    }
    in_name_ = Name::tensor;
    header_.entries.emplace_back().name = name;
    offsets_.clear();
    field_ = Field::other;
    std::ranges::fill(seen_, false);
    return true;
  }

  std::vector<uint64_t>& numbers() {
    return field_ == Field::shape ? header_.entries.back().shape : offsets_;
  }

  void finish_tensor() {
    constexpr std::string_view kNames[] = {"dtype", "shape", "data_offsets"};
    for (size_t i = 0; i < std::size(seen_); ++i) expect(seen_[i], "the key \"{}\" is missing", kNames[i]);
    expect(offsets_.size() == 2, "data_offsets has {} numbers, not 2", offsets_.size());
    expect(offsets_[0] <= offsets_[1], "data_offsets [{}, {}] end before they begin", offsets_[0],
           offsets_[1]);
    header_.entries.back().begin = offsets_[0];
    header_.entries.back().bytes = offsets_[1] - offsets_[0];
  }

  SafetensorsHeader& header_;
  const std::string& path_;
  int depth_ = 0;
  Name in_name_ = Name::none;
  Field field_ = Field::other;
  bool seen_[3] = {};
  bool had_metadata_ = false;
  std::string key_;
  std::vector<uint64_t> offsets_;
};

void refuse(const SafetensorsEntry& entry, const std::string& path, std::string what) {
  throw Error(Status::failed, std::move(what), place_of(path, entry.name), kBadFile);
}

void check_names(const SafetensorsHeader& header, const std::string& path) {
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  CHECK(twice == names.end(), Status::failed, "the header names this tensor twice", place_of(path, *twice),
        kBadFile);
}

/// The data are back to back: no hole, no overlap, nothing after the last.
void check_offsets(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& path) {
  uint64_t end = 0;
  std::string_view before = "the header";
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != end)
      refuse(entry, path,
             fmt::format("its data begin at {}, but those of \"{}\" end at {}: {}", entry.begin,
                         printable(before), end, entry.begin < end ? "they overlap" : "there is a hole"));
    const uint64_t expected = bytes_needed(entry, path);
    if (entry.bytes != expected)
      refuse(entry, path,
             fmt::format("{} bytes of data, but {} of shape {} needs {}", entry.bytes, entry.dtype,
                         shape_text(entry.shape), expected));
    end += entry.bytes;
    before = entry.name;
  }
  CHECK(end == data_bytes, Status::failed,
        fmt::format("the header describes {} bytes of data, but the file holds {}", end, data_bytes),
        printable(path), end > data_bytes ? "the file is cut off: download or copy it again" : kBadFile);
}

}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t dim : shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return '[' + text + ']';
}

std::string place_of(const std::string& path, std::string_view tensor) {
  return fmt::format("{} \"{}\"", printable(path), printable(tensor));
}

uint64_t bytes_needed(const SafetensorsEntry& entry, const std::string& path) {
  const Type* type = type_of(entry.dtype);
  if (type == nullptr) refuse(entry, path, fmt::format("unknown dtype \"{}\"", printable(entry.dtype)));
  uint64_t bits = type->bits;
  for (const uint64_t dim : entry.shape)
    if (__builtin_mul_overflow(bits, dim, &bits))
      refuse(entry, path, fmt::format("the shape {} is too large for any file", shape_text(entry.shape)));
  if (bits % 8 != 0)
    refuse(entry, path,
           fmt::format("{} values of {} are no whole number of bytes", bits / type->bits, entry.dtype));
  return bits / 8;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& path) {
  // The parser skips a byte order mark and takes NUL for the end.
  CHECK(text.starts_with('{') && text.find('\0') == std::string_view::npos, Status::failed,
        text.starts_with('{') ? "the header holds a NUL byte" : "the header does not begin with {",
        printable(path), kBadFile);
  SafetensorsHeader header;
  HeaderReader reader(header, path);
  Json::sax_parse(text, &reader);
  check_names(header, path);
  std::ranges::sort(header.entries, {},
                    [](const SafetensorsEntry& e) { return std::pair(e.begin, e.bytes); });
  check_offsets(header, data_bytes, path);
  return header;
}

void lay_out(std::vector<SafetensorsEntry>& entries) {
  for (const SafetensorsEntry& entry : entries)
    ASSERT(entry.name != kMetadata && type_of(entry.dtype) != nullptr, "tensor \"{}\" of {}", entry.name,
           entry.dtype);
  std::ranges::sort(entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(type_of(b.dtype), std::string_view(a.name)) <
           std::pair(type_of(a.dtype), std::string_view(b.name));
  });
  uint64_t end = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.begin = end;
    entry.bytes = bytes_needed(entry, "");
    end += entry.bytes;
  }
}

std::string render_safetensors_header(const SafetensorsHeader& header) {
  std::map<std::string, std::string> metadata = header.metadata;
  metadata.emplace("format", "pt");
  std::string text = fmt::format("{{\"{}\":{}", kMetadata, Json(metadata).dump());
  for (const SafetensorsEntry& entry : header.entries)
    text +=
        fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", Json(entry.name).dump(),
                    entry.dtype, shape_text(entry.shape), entry.begin, entry.begin + entry.bytes);
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace tandem
