#pragma once
// What a checkpoint, model folder, safetensors file or token file is, and everything that is wrong with it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/token_format.h"
#include "offload/checkpoint_state.h"

namespace tandem {

enum class InspectedKind : uint8_t { checkpoint, model, safetensors, tokens };
/// "checkpoint", "model", "safetensors", "tokens".
std::string_view name_of(InspectedKind kind);

struct TensorFacts {
  std::string name, dtype;  ///< as stored, "BF16"
  std::vector<uint64_t> shape;
  // Only of float dtypes that could be read.
  std::optional<double> sum;
  std::optional<uint64_t> nonfinite;  ///< infinities and NaN; then the sum is one, too
};

/// The weights of a checkpoint, model or safetensors file.
struct WeightFacts {
  std::optional<std::string> model_type;  ///< where config.json describes a model that Tandem knows
  uint64_t parameters = 0;  ///< of the model; elements of all tensors where that is unknown or incomplete
  std::string dtype;        ///< common_dtype() of the same tensors
  uint64_t tensors_found = 0;
  std::vector<TensorFacts> tensors;  ///< in the order of the files, if asked for
};

struct TokenFacts {
  uint64_t tokens = 0;
  std::optional<int64_t> largest_id;  ///< if asked for
};

struct Inspection {
  InspectedKind kind = InspectedKind::model;
  std::string path;                ///< what was looked at; of a run folder its newest checkpoint
  std::vector<std::string> files;  ///< names of those that were opened
  uint64_t bytes = 0;              ///< of these
  std::optional<RunState> state;   ///< of a checkpoint, where state.json can be read
  bool hashes_match = false;       ///< of a checkpoint: every file that state.json names is as it was written
  std::optional<WeightFacts> weights;
  std::optional<TokenFacts> tokens;
  std::vector<Error> problems;
  std::vector<std::string> notes;  ///< what is no problem and might surprise
  [[nodiscard]] bool complete() const { return problems.empty(); }
};

struct InspectOptions {
  bool data = false;                  ///< also read all tensors or tokens, once and in large pieces
  std::optional<TokenFormat> format;  ///< given: the path is a token file
};

/// Error(usage) when there is nothing at the path; whatever else is wrong becomes a problem. The files of a
/// checkpoint are always read for their hashes. Holds a few MiB, however large the files are.
Inspection inspect(const std::string& path, const InspectOptions& options);

}  // namespace tandem
