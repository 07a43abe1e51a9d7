#pragma once
// state.json: what it says, as JSON and back.
#include "core/io/json.h"
#include "offload/checkpoint.h"

namespace tandem {

constexpr const char* kStateFile = "state.json";
constexpr const char* kOptimizerFolder = "optimizer";

/// Its last member is the hash of all others, so that a flipped digit shows.
json::Value render_state(const RunState& state, const FileSums& files);

struct ParsedState {
  RunState state;
  FileSums files;
};
/// The document's error with the place of what is missing or wrong.
ParsedState parse_state(const json::Node& root);

}  // namespace tandem
