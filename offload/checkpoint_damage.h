#pragma once
// Whether a folder is a complete checkpoint, and all that it lacks.
#include <filesystem>
#include <optional>
#include <vector>

#include "offload/checkpoint_state.h"

namespace tandem {

/// True for what a save wrote, complete or not: a folder with state.json or optimizer/.
bool is_checkpoint(const std::filesystem::path& folder);
/// True for a folder that a run was started in, and that is no checkpoint or model itself.
bool is_run(const std::filesystem::path& folder);

struct CheckedCheckpoint {
  std::optional<ParsedState> parsed;  ///< state.json, where it can be read
  std::vector<Error> damage;          ///< none: complete. Each is failed
};
enum class CheckedFiles : uint8_t {
  all,
  weights,  ///< the model's; its config.json, which may be edited by hand, is not among them
};
/// Reads state.json and, by size and hash, the files that it names.
CheckedCheckpoint check_checkpoint(const std::filesystem::path& folder,
                                   CheckedFiles files = CheckedFiles::all);

/// For whoever reads a folder as a model: Error(failed) if it is a checkpoint and a file of its weights is
/// not what was written.
void refuse_damaged_weights(const std::filesystem::path& folder);

}  // namespace tandem
