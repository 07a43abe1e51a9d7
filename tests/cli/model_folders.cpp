#include "tests/cli/model_folders.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/io/hf_config.h"
#include "core/io/safetensors_set.h"
#include "core/model/params.h"
#include "tests/core/safetensors_bytes.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

uint64_t element_bytes(const std::string& dtype) {
  return dtype == "F64" ? 8 : dtype == "F32" ? 4 : dtype == "U8" ? 1 : 2;
}

}  // namespace

void write_tensors(const std::string& file, const StoredTensors& tensors) {
  std::string json = R"({"__metadata__":{"format":"pt","origin":"test"})", data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const uint64_t dim : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    json += fmt::format(",\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", name,
                        tensor.dtype, shape, data.size(), data.size() + tensor.data.size());
    data += tensor.data;
  }
  std::ofstream(file, std::ios::binary) << safetensors_bytes(json + "}", data);
}

StoredTensors tensors_of(const std::string& folder) {
  const SafetensorsSet set(folder);
  StoredTensors tensors;
  for (const auto& [name, tensor] : set.tensors()) {
    std::string data(tensor.entry->bytes, '\0');
    tensor.file->read_bytes(*tensor.entry, 0, std::as_writable_bytes(std::span(data)));
    tensors[name] = {tensor.entry->dtype, tensor.entry->shape, std::move(data)};
  }
  return tensors;
}

StoredTensors random_tensors(const std::string& config_text, const std::vector<std::string>& dtypes) {
  const json::Document document = parse_hf_json(config_text, "config.json");
  const ParamTable table(parse_hf_config(json::Node(document)));
  StoredTensors tensors;
  uint32_t x = 1;
  for (size_t i = 0; i < table.params().size(); ++i) {
    const ParamSpec& spec = table.params()[i];
    const std::vector<int64_t> shape = spec.stored_shape();
    StoredTensor& tensor = tensors[spec.name];
    tensor = {dtypes[i % dtypes.size()], {shape.begin(), shape.end()}, {}};
    tensor.data.resize(static_cast<uint64_t>(spec.numel) * element_bytes(tensor.dtype));
    for (char& c : tensor.data) c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  }
  return tensors;
}

StoredTensor f32(const std::vector<uint64_t>& shape, const std::vector<float>& values) {
  StoredTensor tensor{"F32", shape, {}};
  for (const float value : values) tensor.data += bytes_of(value);
  return tensor;
}

std::map<std::string, std::string> all_files(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    const std::string link = entry.is_symlink() ? "link to " + fs::read_symlink(entry.path()).string() : "";
    files[fs::relative(entry.path(), folder).string()] = link + content(entry.path());
  }
  return files;
}

std::map<std::string, std::string> golden_configs() {
  constexpr std::string_view kEnd = ".config.json";
  std::map<std::string, std::string> configs;
  for (const auto& entry : fs::directory_iterator(std::string(TANDEM_SOURCE_DIR) + "/tests/golden")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kEnd)) configs[name.substr(0, name.size() - kEnd.size())] = content(entry.path());
  }
  return configs;
}

}  // namespace tandem
