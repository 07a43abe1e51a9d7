// Input: model.safetensors.index.json of a folder with the shards a.safetensors (tensors x, y) and
// b.safetensors (y, z), and of other files.
#include <filesystem>

#include "core/io/safetensors_set.h"
#include "tests/core/safetensors_bytes.h"
#include "tests/fuzz/fuzzing.h"

namespace tandem {
namespace {

std::string shard_of(const std::string& first, const std::string& second) {
  const auto tensor = [](const std::string& name, const char* offsets) {
    return "\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}";
  };
  return safetensors_bytes("{" + tensor(first, "[0,4]") + "," + tensor(second, "[4,8]") + "}",
                           std::string(8, '\0'));
}

/// The folder, and outside of it a shard that no index may reach.
std::string make_folder() {
  const std::string path = folder().path("model");
  std::filesystem::create_directory(path);
  folder().write("model/a.safetensors", shard_of("x", "y"));
  folder().write("model/b.safetensors", shard_of("y", "z"));
  folder().write("model/broken.safetensors", "no header");
  folder().write("outside.safetensors", shard_of("x", "y"));
  return path;
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tandem::require;
  static const std::string path = tandem::make_folder();
  tandem::folder().write("model/model.safetensors.index.json",
                         std::string(reinterpret_cast<const char*>(data), size));
  tandem::accepts([] {
    const tandem::SafetensorsSet set(path);
    require(!set.tensors().empty(), "an index names tensors");
    for (const auto& [name, tensor] : set.tensors()) {
      require(tensor.entry->name == name, "a tensor is the one of its name");
      require(tensor.file->find(name) == tensor.entry, "a tensor is in its file");
      require(
          tensor.file->path() == path + "/a.safetensors" || tensor.file->path() == path + "/b.safetensors",
          "a shard is one of the folder's");
      require(set.find(name) == &tensor, "a tensor is found by its name");
    }
  });
  return 0;
}
