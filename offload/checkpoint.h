#pragma once
// Checkpoints: atomic, checksummed, free of world size. The folder is an ordinary Hugging Face model folder;
// optimizer/ and state.json hold the rest of a run. Planes under optimizer/ have the names and shapes of the
// model's files, and none for frozen parameters. The states of a block whose optimizer is on the device are
// in fp32 whatever the format of the others; a tensor's own dtype says so. Masters beside their bf16 weights
// are NAME (those weights) and NAME.low; groups of int8 moments, whose scales are NAME.scale, count in the
// order of training, also where the files' is transposed.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/io/hash.h"
#include "core/io/model_folder.h"
#include "core/io/safetensors_set.h"
#include "core/model/params.h"
#include "offload/planes.h"
#include "offload/setup.h"
#include "offload/trainer.h"

namespace tandem {

/// A training data file as a checkpoint remembers it.
struct DataFile {
  std::string path;
  FileSum sum;  ///< identity_of() the file
};

/// What state.json says, besides its files.
struct RunState {
  int64_t step = 0;     ///< steps done, skipped ones included
  uint64_t sample = 0;  ///< the next sample of the run
  double epoch = 0;
  uint64_t seed = 0;
  TrainState train;
  DType dtype = DType::f32;
  std::vector<DataFile> data;
  std::string config_hash;  ///< of config.resolved.json
  bool states = true;       ///< masters and moments are there; without them a run can't be resumed
  StateFormat format;       ///< of the states on the host
};

/// What goes into a checkpoint beside the trainer's planes.
struct CheckpointModel {
  const ParamTable& table;
  DType dtype = DType::f32;
  std::string config_json;               ///< the text of the checkpoint's config.json
  StoredForm form;                       ///< how the model's files came
  std::optional<std::string> model;      ///< folder whose generation_config.json is copied
  std::optional<std::string> tokenizer;  ///< folder whose tokenizer files are copied
};

/// Bytes that save_checkpoint() writes; headers and small files are left out.
struct CheckpointParts {
  bool states = true, lagged = false, predicted = false;
  StateFormat format = {};
  int64_t on_device = 0;  ///< parameters whose states are in fp32 whatever the format
};
/// What the largest save of a run with that setup holds.
CheckpointParts largest_save(const TrainSetup& setup, const ParamTable& table, bool states);
uint64_t checkpoint_bytes(const ParamTable& table, DType dtype, const CheckpointParts& parts);

/// Writes the state of a quiesced trainer as `folder`, which appears complete or not at all. Error(failed),
/// with the bytes needed, when the disk is full or fails, and with the tensor when a weight is not finite;
/// then what was there before is untouched and nothing is left behind. An older folder of that name is there
/// until the new one takes its place. Returns the bytes written.
uint64_t save_checkpoint(const std::filesystem::path& folder, Trainer& trainer, const CheckpointModel& model,
                         const RunState& state);

/// The checkpoint is whole, but was saved without states.
class NoStatesError : public Error {
 public:
  using Error::Error;
};

/// A complete checkpoint that a run can go on from, open for reading.
class Checkpoint {
 public:
  /// Reads state.json and checks every file that it names, by size and hash. Error(failed) that says what is
  /// incomplete; NoStatesError(failed).
  explicit Checkpoint(std::filesystem::path folder);
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const RunState& state() const { return state_; }
  [[nodiscard]] const std::map<Plane, SafetensorsSet>& planes() const { return planes_; }

 private:
  std::filesystem::path folder_;
  RunState state_;
  std::map<Plane, SafetensorsSet> planes_;
};

/// The planes of a checkpoint, for the model that it was made with.
class SavedPlanes : public PlaneSource {
 public:
  /// Error(usage) when the checkpoint is of another model than the table's, or froze other parameters.
  SavedPlanes(const Checkpoint& checkpoint, const ParamTable& table);
  bool read(Plane plane, BlockId block, Tensor out) override;
  [[nodiscard]] StateFormat format(const ParamSpec& spec) const override;
  [[nodiscard]] bool has_moments() const override { return true; }
  void read_state(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) override;
  void read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) override;

 private:
  void check(Plane file, const SafetensorsSet& set) const;
  const Checkpoint& checkpoint_;
  const ParamTable& table_;
  const ModelFolder model_;
};

}  // namespace tandem
