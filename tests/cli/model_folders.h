#pragma once
// Model folders that tests write tensor by tensor, and what folders hold.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem {

/// One tensor as a file holds it.
struct StoredTensor {
  std::string dtype;  ///< "BF16"
  std::vector<uint64_t> shape;
  std::string data;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};
using StoredTensors = std::map<std::string, StoredTensor>;

/// FILE of these tensors, with the metadata {"format": "pt", "origin": "test"}.
void write_tensors(const std::string& file, const StoredTensors& tensors);
/// The tensors of a folder's model, single file or shards.
StoredTensors tensors_of(const std::string& folder);

/// Tensors for a config.json, named and shaped as its family stores them, of random bytes; dtypes are taken
/// in turn. Bytes are any bytes: some values are not finite.
StoredTensors random_tensors(const std::string& config_text, const std::vector<std::string>& dtypes);
/// A tensor of these values.
StoredTensor f32(const std::vector<uint64_t>& shape, const std::vector<float>& values);

/// Every file below a folder by its path there, links followed; "link to TARGET" before the bytes of a link.
std::map<std::string, std::string> all_files(const std::string& folder);

/// The text of tests/golden/NAME.config.json, by NAME.
std::map<std::string, std::string> golden_configs();

}  // namespace tandem
