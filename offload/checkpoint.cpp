#include "offload/checkpoint.h"

#include <array>
#include <cstring>

#include "core/io/atomic_file.h"
#include "offload/checkpoint_state.h"
#include "offload/folder_in_place.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

/// The planes beside the model's weights, and their files' stem under optimizer/.
struct PlaneFile {
  Plane plane;
  const char* stem;
  bool fp32;
};
constexpr std::array<PlaneFile, 5> kPlaneFiles = {{{Plane::master, "master", true},
                                                   {Plane::exp_avg, "exp_avg", true},
                                                   {Plane::exp_avg_sq, "exp_avg_sq", true},
                                                   {Plane::lagged, "lagged", false},
                                                   {Plane::predicted, "predicted", false}}};

const std::string kOptimizerFolder = "optimizer";

DType dtype_of(const PlaneFile& file, DType dtype) { return file.fp32 ? DType::f32 : dtype; }

template <class T>
void refuse_nonfinite(const ParamSpec& spec, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value{};
    std::memcpy(&value, bytes.data() + i, sizeof value);
    CHECK(!non_finite(value), Status::failed, "a weight is not finite: the checkpoint is not written",
          spec.name, "resume from the last good checkpoint with a lower lr or gradient_clipping");
  }
}

void refuse_nonfinite(const ParamSpec& spec, DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::bf16:
      return refuse_nonfinite<bf16>(spec, bytes);
    case DType::f16:
      return refuse_nonfinite<f16>(spec, bytes);
    default:
      return refuse_nonfinite<float>(spec, bytes);
  }
}

bool holds_weights(Plane plane) { return plane != Plane::exp_avg && plane != Plane::exp_avg_sq; }

void add(FileSums& all, const FileSums& some, const std::string& folder = {}) {
  for (const auto& [name, sum] : some) all[folder + name] = sum;
}

std::vector<uint64_t> file_shape(const ParamSpec& spec) {
  const std::vector<int64_t> shape = spec.stored_shape();
  return {shape.begin(), shape.end()};
}

/// A plane's parameters, fetched in the block's order; none that is not finite where they are weights.
FetchParameter fetch_plane(Trainer& trainer, Plane plane, DType dtype) {
  return [&trainer, plane, dtype](const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
    const Tensor piece(out.data(), dtype, {static_cast<int64_t>(out.size() / size_of(dtype))});
    trainer.read_plane(plane, spec.block, piece, spec.offset + first);
    if (holds_weights(plane)) refuse_nonfinite(spec, dtype, out);
  };
}

FileSums save_plane(const std::string& folder, const PlaneFile& file, Trainer& trainer,
                    const CheckpointModel& model) {
  const DType dtype = dtype_of(file, model.dtype);
  SafetensorsHeader header;
  for (const ParamSpec& spec : model.table.params())
    if (!spec.frozen)
      header.entries.push_back(
          {model.form.stored_name(spec.name), std::string(safetensors_name(dtype)), file_shape(spec), 0, 0});
  std::map<std::string, const ParamSpec*> specs;
  for (const ParamSpec& spec : model.table.params()) specs[model.form.stored_name(spec.name)] = &spec;
  StoredOrder order(fetch_plane(trainer, file.plane, dtype), size_of(dtype));
  return write_safetensors_set(folder, file.stem, header, kShardLimit,
                               [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) {
                                 order.read(*specs.at(entry.name), offset, out);
                               });
}

/// Everything into the folder, state.json last. Returns the bytes written.
uint64_t write_files(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                     const RunState& state) {
  FileSums sums;
  for (const PlaneFile& file : kPlaneFiles)
    if (state.states && trainer.has_plane(file.plane))
      add(sums, save_plane(folder / kOptimizerFolder, file, trainer, model), kOptimizerFolder + "/");
  add(sums, save_weights(folder, model.table, model.dtype, model.form,
                         fetch_plane(trainer, Plane::weights, model.dtype)));
  sums["config.json"] = write_atomically(folder / "config.json", model.config_json);
  if (model.model) add(sums, copy_files(*model.model, folder, kGenerationConfig));
  if (model.tokenizer) add(sums, copy_files(*model.tokenizer, folder, kTokenizerFiles));
  uint64_t bytes =
      write_atomically(folder / kStateFile, json::dump(render_state(state, sums), 2) + "\n").bytes;
  for (const auto& [name, sum] : sums) bytes += sum.bytes;
  return bytes;
}

/// Reading planes takes a staging buffer of the trainer's; it goes back however the save ends.
class Reading {
 public:
  explicit Reading(Trainer& trainer) : trainer_(trainer) { trainer_.begin_reading(); }
  ~Reading() { trainer_.end_reading(); }

 private:
  Trainer& trainer_;
};

/// Error(failed) if the file is not the one that state.json names.
void verify(const fs::path& folder, const std::string& name, const FileSum& expected) {
  const fs::path path = folder / name;
  const File file(path, Status::failed);
  CHECK(file.size() == expected.bytes, Status::failed,
        fmt::format("the file has {} bytes where the checkpoint wrote {}", file.size(), expected.bytes), path,
        "the checkpoint is damaged; resume from an older one");
  CHECK(sum_of(file) == expected, Status::failed, "the file's content is not what the checkpoint wrote", path,
        "the checkpoint is damaged; resume from an older one");
}

}  // namespace

CheckpointParts largest_save(const TrainSetup& setup, bool states) {
  const bool delayed = setup.policy.schedule == Schedule::delayed;
  return {states, delayed, delayed && setup.prediction > 0};
}

uint64_t checkpoint_bytes(const ParamTable& table, DType dtype, const CheckpointParts& parts) {
  const auto all = static_cast<uint64_t>(table.parameter_count()),
             trained = static_cast<uint64_t>(table.trained_count());
  const uint64_t planes = (parts.lagged ? 1u : 0u) + (parts.predicted ? 1u : 0u);
  const uint64_t states = parts.states ? trained * (3 * sizeof(float) + planes * size_of(dtype)) : 0;
  return all * size_of(dtype) + states;
}

uint64_t save_checkpoint(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                         const RunState& state) {
  uint64_t bytes = 0;
  write_in_place(folder, Existing::replaced, [&](const fs::path& partial) {
    const fs::path optimizer = partial / kOptimizerFolder;
    if (state.states) make_folder(optimizer);
    const Reading reading(trainer);
    bytes = write_files(partial, trainer, model, state);
    if (state.states) sync_folder(optimizer);
  });
  return bytes;
}

Checkpoint::Checkpoint(fs::path folder) : folder_(std::move(folder)) {
  const fs::path state = folder_ / kStateFile;
  std::error_code ignored;
  CHECK(fs::exists(state, ignored), Status::failed, "the checkpoint is incomplete: it has no state.json",
        folder_, "--resume auto, or the path of a complete step-... folder");
  const json::Document document = json::parse_file(state, {.status = Status::failed});
  ParsedState parsed = parse_state(json::Node(document));
  for (const auto& [name, sum] : parsed.files) verify(folder_, name, sum);
  if (!parsed.state.states)
    throw NoStatesError(
        Status::failed,
        "the checkpoint holds weights only (checkpoint.states was false): no run can go on from it", folder_,
        "a new run with model.path set to this folder, which starts with fresh moments");
  state_ = std::move(parsed.state);
  for (const PlaneFile& file : kPlaneFiles) {
    const std::string name = kOptimizerFolder + "/" + file.stem + ".safetensors";
    if (parsed.files.contains(name) || parsed.files.contains(name + ".index.json"))
      planes_.emplace(file.plane, SafetensorsSet(folder_ / kOptimizerFolder, file.stem));
  }
  for (const Plane plane : {Plane::master, Plane::exp_avg, Plane::exp_avg_sq})
    CHECK(planes_.contains(plane), Status::failed, "the checkpoint has no masters or moments", folder_,
          "resume from another checkpoint, or start a new run with model.path set to this one");
}

SavedPlanes::SavedPlanes(const Checkpoint& checkpoint, const ParamTable& table)
    : checkpoint_(checkpoint), table_(table), model_(checkpoint.folder().string()) {
  for (const PlaneFile& file : kPlaneFiles) {
    const auto set = checkpoint.planes().find(file.plane);
    if (set != checkpoint.planes().end())
      check(set->second, file.stem, dtype_of(file, checkpoint.state().dtype));
  }
}

void SavedPlanes::check(const SafetensorsSet& set, const char* stem, DType dtype) const {
  constexpr const char* kHint =
      "it belongs to another model, or froze other parameters: check model.path, "
      "model.config and model.freeze";
  const std::string path = checkpoint_.folder() / kOptimizerFolder / (std::string(stem) + ".safetensors");
  const auto name = safetensors_name(dtype);
  size_t trained = 0;
  for (const ParamSpec& spec : table_.params()) {
    if (spec.frozen) continue;
    ++trained;
    const LocatedTensor* tensor = set.find(model_.stored_form().stored_name(spec.name));
    const std::vector<uint64_t> shape = file_shape(spec);
    CHECK(tensor != nullptr && tensor->entry->shape == shape && tensor->entry->dtype == name, Status::usage,
          fmt::format("the checkpoint has no {} of shape {} for this parameter", name, shape_text(shape)),
          place_of(path, spec.name), kHint);
  }
  CHECK(set.tensors().size() == trained, Status::usage,
        fmt::format("the checkpoint has states of {} parameters, the model trains {}", set.tensors().size(),
                    trained),
        path, kHint);
}

bool SavedPlanes::read(Plane plane, BlockId block, Tensor out) {
  const auto set = checkpoint_.planes().find(plane);
  if (set == checkpoint_.planes().end()) return false;
  for (const ParamSpec& spec : table_.of_block(block)) {
    if (spec.frozen) continue;
    const LocatedTensor& tensor = *set->second.find(model_.stored_form().stored_name(spec.name));
    const size_t element = size_of(out.dtype());
    const Tensor part = out.flat(spec.offset, spec.numel);
    read_in_block_order(spec, element, 0, {static_cast<std::byte*>(part.raw()), part.bytes()},
                        [&](uint64_t first, std::span<std::byte> bytes) {
                          tensor.file->read_bytes(*tensor.entry, first * element, bytes);
                        });
  }
  return true;
}

void SavedPlanes::read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) {
  model_.read(spec, first, out, NonFinite::refuse);
}

}  // namespace tandem
