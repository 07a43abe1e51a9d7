#pragma once
// config.json of Hugging Face model folders, and the object model.config of a Tandem config, which has its
// keys.
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/io/json.h"
#include "core/model/arch.h"

namespace tandem {

/// Parses the text of a config.json as Python writes it: NaN, Infinity and a byte-order mark are accepted.
/// Error(failed) with name:line:column.
json::Document parse_hf_json(std::string_view text, std::string name);

/// The architecture that a config describes. A missing key means the default of transformers' class for its
/// model_type, as does null where that has no meaning of its own. Whole reals count as integers. Whatever
/// would compute something else than transformers does is refused by name: other model types and
/// architectures, quantised checkpoints, activations, rotary types, layer types. Errors have the document's
/// status and place. Dropout is read, never applied: whoever opens the model says so.
Arch parse_hf_config(const json::Node& config);

/// config.json for a run that starts from model.config: that object's own keys, plus model_type,
/// architectures and the dtype.
std::string render_hf_config(const json::Value& config, DType dtype);

/// The text of a config.json with every byte as it came, but for the values of torch_dtype and dtype where
/// they name another dtype than the weights are stored in.
std::string with_stored_dtype(std::string text, const json::Document& document, DType dtype);

}  // namespace tandem
