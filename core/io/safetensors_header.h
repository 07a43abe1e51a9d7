#pragma once
// The JSON in front of a safetensors file, as text and as a list of tensors.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// One tensor of a safetensors file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as stored, "BF16"; also types that Tandem can't compute with
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  ///< byte offset from the end of the header
  uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by offset
  std::map<std::string, std::string> metadata;
};

/// Checks everything that can be wrong: syntax, duplicate names, unknown dtypes, numbers other than unsigned
/// integers, sizes that overflow or do not fit shape and dtype, holes, overlaps, and a total other than
/// data_bytes (what follows the header in the file). Error(failed) with path and tensor.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& path);

/// Bytes of the entry's data by dtype and shape. Error(failed) with path and tensor for an unknown dtype, an
/// overflow, or a part of a byte.
uint64_t bytes_needed(const SafetensorsEntry& entry, const std::string& path);

/// Puts the entries in the format's order (widest dtype first, then by name), which aligns every tensor to
/// its element, and sets begin and bytes from dtype and shape. Names are distinct, none is "__metadata__".
void lay_out(std::vector<SafetensorsEntry>& entries);

/// The first bytes of the file: length and JSON, padded so that the data begin at a multiple of 8. Metadata
/// gets "format": "pt" if it names no format: some readers refuse files without it.
std::string render_safetensors_header(const SafetensorsHeader& header);

/// "[256, 64]"
std::string shape_text(const std::vector<uint64_t>& shape);

/// FILE "TENSOR", for messages.
std::string place_of(const std::string& path, std::string_view tensor);

}  // namespace tandem
