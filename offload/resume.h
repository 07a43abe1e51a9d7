#pragma once
// Which checkpoint a run starts from, and whether the config may differ from the one that it was made with.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/run/config.h"
#include "offload/assembly.h"
#include "offload/checkpoint.h"
#include "offload/run_folder.h"

namespace tandem {

struct ResumeChoice {
  std::unique_ptr<Checkpoint> checkpoint;  ///< null: start afresh
  std::vector<int64_t> abandoned;  ///< steps of the folder's checkpoints that lie beyond it, broken ones too
  std::vector<std::string> notes;  ///< what was chosen, for the screen
  std::vector<std::string> warnings;  ///< what was found broken
};

/// resume: "auto" = the newest complete checkpoint of the run folder, or none; else the path of one, which
/// must be complete. Nothing: a fresh run; Error(usage) if the folder holds a run.
ResumeChoice choose_checkpoint(const RunFolder& folder, const std::optional<std::string>& resume);

/// Lists what differs from the config that the checkpoint's run had last, one line each. Error(usage) where
/// seed, data or model differ and no --set names the key, or where the dtype does. Also compares the data
/// files and the model with those that the checkpoint saw.
std::vector<std::string> check_differences(const RunFolder& folder, const Config& config, const Arch& arch,
                                           const std::vector<std::string>& sets, const Checkpoint& checkpoint,
                                           const std::vector<DataFile>& data);

/// What the training tokens are read from, Megatron's indexes included.
std::vector<DataFile> data_files(const DataSets& data);

}  // namespace tandem
