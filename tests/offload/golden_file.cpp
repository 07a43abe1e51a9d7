#include "tests/offload/golden_file.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "core/io/file.h"
#include "core/io/hf_config.h"

namespace tandem::golden {

namespace {

struct ArrayEntry {
  std::string name, type;
  size_t count = 0;
};

size_t size_of_type(const std::string& type) {
  if (type == "f64") return 8;
  if (type == "f32" || type == "i32") return 4;
  throw std::runtime_error("golden: unknown array type " + type);
}

/// count little-endian elements of type T, as doubles.
template <class T>
std::vector<double> widen(const char* bytes, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));  // the payload is not aligned
    values[i] = static_cast<double>(value);
  }
  return values;
}

std::vector<double> widen(const ArrayEntry& entry, const char* bytes) {
  if (entry.type == "f64") return widen<double>(bytes, entry.count);
  if (entry.type == "f32") return widen<float>(bytes, entry.count);
  return widen<int32_t>(bytes, entry.count);
}

template <class Map>
const typename Map::mapped_type& at(const Map& map, const std::string& key) {
  const auto found = map.find(key);
  if (found == map.end()) throw std::runtime_error("golden: there is no " + key);
  return found->second;
}

std::string path_of(const std::string& file) {
  return std::string(TANDEM_SOURCE_DIR) + "/tests/golden/" + file;
}

}  // namespace

GoldenFile::GoldenFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string magic = "tandem-golden 1\n", end_mark = "\nend\n";
  const size_t header_end = bytes.find(end_mark);
  if (!bytes.starts_with(magic) || header_end == std::string::npos)
    throw std::runtime_error(path + ": not a golden file");

  std::vector<ArrayEntry> entries;
  std::istringstream header(bytes.substr(magic.size(), header_end + 1 - magic.size()));
  for (std::string kind; header >> kind;) {
    ArrayEntry entry;
    if (kind == "set" && header >> entry.name)
      header >> words_[entry.name];
    else if (kind == "array" && header >> entry.name >> entry.type >> entry.count)
      entries.push_back(entry);
    else
      throw std::runtime_error(path + ": bad header line " + kind + " " + entry.name);
  }

  size_t at = header_end + end_mark.size();
  for (const ArrayEntry& entry : entries) {
    const size_t size = entry.count * size_of_type(entry.type);
    if (size > bytes.size() - at) throw std::runtime_error(path + ": ends inside " + entry.name);
    arrays_[entry.name] = widen(entry, bytes.data() + at);
    at += size;
  }
  if (at != bytes.size()) throw std::runtime_error(path + ": bytes after the last array");
}

const std::string& GoldenFile::word(const std::string& key) const { return at(words_, key); }
double GoldenFile::number(const std::string& key) const { return std::stod(word(key)); }
int64_t GoldenFile::integer(const std::string& key) const { return std::stoll(word(key)); }
const std::vector<double>& GoldenFile::array(const std::string& name) const { return at(arrays_, name); }

double GoldenFile::scalar(const std::string& name) const {
  const std::vector<double>& values = array(name);
  if (values.size() != 1) throw std::runtime_error("golden: " + name + " is not one number");
  return values.front();
}

std::vector<std::string> GoldenFile::parameters() const {
  const std::string prefix = "grad.", suffix = ".norm";
  std::vector<std::string> names;
  for (const auto& [name, values] : arrays_)
    if (name.starts_with(prefix) && name.ends_with(suffix))
      names.push_back(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
  return names;
}

const std::vector<std::string>& variants() {
  static const std::vector<std::string> names{
      "gpt2",         "gpt2_untied",  "llama_biases", "llama_head_dim", "llama_linear",
      "llama_llama3", "llama_tied",   "llama_untied", "llama_yarn",     "mistral_window",
      "qwen2_biases", "qwen2_window", "qwen3_tied",   "qwen3_window"};
  return names;
}

GoldenFile load(const std::string& variant) { return GoldenFile(path_of(variant + ".golden")); }

Arch arch_of(const std::string& variant) {
  const std::string path = path_of(variant + ".config.json");
  const json::Document document = parse_hf_json(read_text(path, 1 << 20), path);
  return parse_hf_config(json::Node(document));
}

}  // namespace tandem::golden
