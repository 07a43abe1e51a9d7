#pragma once
#include <string>

#include "tests/core/temporary_folder.h"

namespace tandem {

/// A safetensors file as bytes, from the JSON of its header as it is (well-formed or not) and its data.
inline std::string safetensors_bytes(const std::string& json, const std::string& data) {
  return bytes_of(static_cast<uint64_t>(json.size())) + json + data;
}

}  // namespace tandem
