#pragma once
// A model or checkpoint as an ordinary Hugging Face folder.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/io/file.h"

namespace tandem {

struct ExportOptions {
  std::string path;            ///< a Hugging Face folder, a checkpoint, or a run folder
  std::string out;             ///< does not exist, or is an empty folder; not in the input
  std::optional<DType> dtype;  ///< of all weights; absent: each tensor's own
  FileAccess access = FileAccess::sequential;
};

struct ExportResult {
  std::string out;              ///< as it was given
  std::string source;           ///< the folder that was read: of a run its newest complete checkpoint
  std::optional<int64_t> step;  ///< of a checkpoint
  uint64_t bytes = 0;           ///< written
  uint64_t tensors = 0;
  std::string dtype;               ///< common_dtype() of what was written
  std::vector<std::string> notes;  ///< what was left out, one line each
};

/// Writes the model's parameters under their names in their shapes, with the metadata of their files, then
/// config.json (its dtype corrected where it would be false), generation_config.json and the tokenizer's
/// files. A tensor that keeps its dtype keeps its bytes; others are rounded as weights are, those of a
/// checkpoint from its fp32 masters where it has them (a save of weights alone has none, and a frozen
/// parameter neither). `out` appears complete or not at all, the input is only read, and no more than a few
/// MiB are held. Error(usage): no such path, or an `out` that can't be; Error(does_not_fit): the disk; else
/// Error(failed), or an ErrorList with all that is wrong with the checkpoint.
ExportResult export_model(const ExportOptions& options);

}  // namespace tandem
