#include "offload/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>

#include "core/io/atomic_file.h"
#include "offload/checkpoint_damage.h"
#include "offload/checkpoint_state.h"
#include "offload/choices.h"
#include "offload/folder_in_place.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

/// The files under optimizer/ by the plane that gives them their stem.
struct PlaneFile {
  Plane plane;
  const char* stem;
};
constexpr std::array<PlaneFile, 5> kPlaneFiles = {{{Plane::master, "master"},
                                                   {Plane::exp_avg, "exp_avg"},
                                                   {Plane::exp_avg_sq, "exp_avg_sq"},
                                                   {Plane::lagged, "lagged"},
                                                   {Plane::predicted, "predicted"}}};
const std::string kOptimizerPrefix = std::string(kOptimizerFolder) + "/";
constexpr const char* kOtherModel =
    "it belongs to another model, or froze other parameters: check model.path, model.config and model.freeze";

/// A plane as files hold it: of each parameter one tensor, NAME + suffix.
struct StoredPlane {
  Plane plane;
  std::string suffix;
  DType dtype;              ///< in memory
  std::string_view stored;  ///< in files
  bool scales = false;      ///< one element for each group instead of the parameter's own shape
};

/// The planes of one file, in the format of the states and the dtype of training.
std::vector<StoredPlane> stored_planes(Plane file, DType training, StateFormat format) {
  const auto plain = [](Plane plane, DType dtype) {
    return StoredPlane{plane, "", dtype, safetensors_name(dtype)};
  };
  if (file == Plane::master) {
    if (!row_of(format.master).beside_weights) return {plain(Plane::master, DType::f32)};
    return {plain(Plane::upper, DType::bf16),
            {Plane::master, ".low", master_dtype(format.master),
             format.master == MasterFormat::split ? "U16" : "I8"}};
  }
  if (file != Plane::exp_avg && file != Plane::exp_avg_sq) return {plain(file, training)};
  if (format.moments != MomentFormat::int8) return {plain(file, moment_dtype(format.moments))};
  const bool first = file == Plane::exp_avg;
  return {{file, "", DType::u8, first ? "I8" : "U8"},  // the first moment's codes are signed
          {first ? Plane::exp_avg_scale : Plane::exp_avg_sq_scale, ".scale", DType::bf16, "BF16", true}};
}

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

/// Values of which none may be infinite or NaN, in a dtype that can tell.
bool holds_weights(const StoredPlane& plane) {
  const bool moments = plane.plane == Plane::exp_avg || plane.plane == Plane::exp_avg_sq;
  return !moments && plane.suffix.empty();
}

void add(FileSums& all, const FileSums& some, const std::string& folder = {}) {
  for (const auto& [name, sum] : some) all[folder + name] = sum;
}

std::vector<uint64_t> stored_shape(const StoredPlane& plane, const ParamSpec& spec) {
  const auto groups = static_cast<uint64_t>((spec.numel + kStateGroup - 1) / kStateGroup);
  return plane.scales ? std::vector<uint64_t>{groups} : file_shape(spec);
}

/// A plane's parameters, fetched in the block's order; none that is not finite where they are weights.
FetchParameter fetch_plane(Trainer& trainer, const StoredPlane& plane) {
  return [&trainer, plane](const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
    const Tensor piece(out.data(), plane.dtype, {static_cast<int64_t>(out.size() / size_of(plane.dtype))});
    trainer.read_plane(plane.plane, spec.block, piece,
                       (plane.scales ? spec.offset / kStateGroup : spec.offset) + first);
    if (holds_weights(plane)) refuse_nonfinite(spec, plane.dtype, out);
  };
}

/// A plane on its way into a file.
struct OutgoingPlane {
  StoredPlane plane;
  StoredOrder order;
};
struct OutgoingTensor {
  const ParamSpec* spec;
  OutgoingPlane* plane;
};

/// format: of the states on the host; a block's own is the trainer's to say.
FileSums save_file(const std::string& folder, const PlaneFile& file, Trainer& trainer,
                   const CheckpointModel& model, StateFormat format) {
  std::vector<StateFormat> formats{format};
  if (format != StateFormat{}) formats.emplace_back();
  std::list<OutgoingPlane> planes;
  SafetensorsHeader header;
  std::map<std::string, OutgoingTensor> tensors;
  for (const StateFormat held : formats)
    for (const StoredPlane& plane : stored_planes(file.plane, model.dtype, held)) {
      OutgoingPlane& outgoing = planes.emplace_back(
          OutgoingPlane{plane, StoredOrder(fetch_plane(trainer, plane), size_of(plane.dtype))});
      for (const ParamSpec& spec : model.table.params()) {
        if (spec.frozen || trainer.format(spec.block) != held) continue;
        const std::string name = model.form.stored_name(spec.name) + plane.suffix;
        header.entries.push_back({name, std::string(plane.stored), stored_shape(plane, spec), 0, 0});
        tensors[name] = {&spec, &outgoing};
      }
    }
  return write_safetensors_set(folder, file.stem, header, kShardLimit,
                               [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) {
                                 const auto& [spec, from] = tensors.at(entry.name);
                                 if (!from->plane.scales) return from->order.read(*spec, offset, out);
                                 fetch_plane(trainer, from->plane)(
                                     *spec, static_cast<int64_t>(offset / size_of(from->plane.dtype)), out);
                               });
}

/// Everything into the folder, state.json last. Returns the bytes written.
uint64_t write_files(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                     const RunState& state) {
  FileSums sums;
  for (const PlaneFile& file : kPlaneFiles)
    if (state.states && trainer.has_plane(file.plane))
      add(sums, save_file(folder / kOptimizerFolder, file, trainer, model, state.format), kOptimizerPrefix);
  add(sums, save_weights(folder, model.table, model.dtype, model.form,
                         fetch_plane(trainer, {Plane::weights, "", model.dtype, {}})));
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

}  // namespace

CheckpointParts largest_save(const TrainSetup& setup, const ParamTable& table, bool states) {
  const bool delayed = setup.policy.schedule == Schedule::delayed;
  return {states, delayed, delayed && setup.prediction > 0, setup.states,
          parameters_on(Placement::device, setup, table)};
}

uint64_t checkpoint_bytes(const ParamTable& table, DType dtype, const CheckpointParts& parts) {
  const auto all = static_cast<uint64_t>(table.parameter_count()),
             trained = static_cast<uint64_t>(table.trained_count());
  const uint64_t planes = (parts.lagged ? 1u : 0u) + (parts.predicted ? 1u : 0u);
  const auto bytes = [](StateFormat format, uint64_t parameters) {
    const double each = bytes_held(format) + static_cast<double>(bytes_beside(format));
    return static_cast<uint64_t>(each * static_cast<double>(parameters));
  };
  const auto on_device = static_cast<uint64_t>(parts.on_device);
  const uint64_t held = bytes(parts.format, trained - on_device) + bytes({}, on_device);
  return all * size_of(dtype) + (parts.states ? held + trained * planes * size_of(dtype) : 0);
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
  const CheckedCheckpoint checked = check_checkpoint(folder_);
  if (!checked.damage.empty()) throw checked.damage.front();
  const ParsedState& parsed = *checked.parsed;
  if (!parsed.state.states)
    throw NoStatesError(
        Status::failed,
        "the checkpoint holds weights only (checkpoint.states was false): no run can go on from it", folder_,
        "a new run with model.path set to this folder, which starts with fresh moments");
  state_ = parsed.state;
  for (const PlaneFile& file : kPlaneFiles) {
    const std::string name = kOptimizerPrefix + file.stem + ".safetensors";
    if (parsed.files.contains(name) || parsed.files.contains(name + ".index.json"))
      planes_.emplace(file.plane, SafetensorsSet(folder_ / kOptimizerFolder, file.stem));
  }
  for (const Plane plane : {Plane::master, Plane::exp_avg, Plane::exp_avg_sq})
    CHECK(planes_.contains(plane), Status::failed, "the checkpoint has no masters or moments", folder_,
          "resume from another checkpoint, or start a new run with model.path set to this one");
}

SavedPlanes::SavedPlanes(const Checkpoint& checkpoint, const ParamTable& table)
    : checkpoint_(checkpoint), table_(table), model_(checkpoint.folder().string()) {
  for (const auto& [file, set] : checkpoint.planes()) check(file, set);
}

StateFormat SavedPlanes::format(const ParamSpec& spec) const {
  StateFormat format = checkpoint_.state().format;
  const auto is_fp32 = [&](Plane file) {
    const LocatedTensor* tensor =
        checkpoint_.planes().at(file).find(model_.stored_form().stored_name(spec.name));
    return tensor != nullptr && tensor->entry->dtype == safetensors_name(DType::f32);
  };
  if (is_fp32(Plane::master)) format.master = MasterFormat::fp32;
  if (is_fp32(Plane::exp_avg)) format.moments = MomentFormat::fp32;
  return format;
}

/// Of each parameter all the tensors that its format wants, and no others.
void SavedPlanes::check(Plane file, const SafetensorsSet& set) const {
  const std::string stem = std::ranges::find(kPlaneFiles, file, &PlaneFile::plane)->stem,
                    path = checkpoint_.folder() / kOptimizerFolder / (stem + ".safetensors");
  const RunState& state = checkpoint_.state();
  size_t expected = 0;
  for (const ParamSpec& spec : table_.params())
    for (const StoredPlane& plane : stored_planes(file, state.dtype, format(spec))) {
      if (spec.frozen) continue;
      ++expected;
      const std::string name = model_.stored_form().stored_name(spec.name) + plane.suffix;
      const LocatedTensor* tensor = set.find(name);
      const std::vector<uint64_t> shape = stored_shape(plane, spec);
      CHECK(tensor != nullptr && tensor->entry->shape == shape && tensor->entry->dtype == plane.stored,
            Status::usage,
            fmt::format("the checkpoint has no {} of shape {} for this parameter", plane.stored,
                        shape_text(shape)),
            place_of(path, name), kOtherModel);
    }
  CHECK(set.tensors().size() == expected, Status::usage,
        fmt::format("the checkpoint has {} tensors of states, the model trains {}", set.tensors().size(),
                    expected),
        path, kOtherModel);
}

bool SavedPlanes::read(Plane plane, BlockId block, Tensor out) {
  if (!checkpoint_.planes().contains(plane)) return false;
  for (const ParamSpec& spec : table_.of_block(block)) {
    if (spec.frozen) continue;
    const Tensor part = out.flat(spec.offset, spec.numel);
    read_state(plane, spec, 0, {static_cast<std::byte*>(part.raw()), part.bytes()});
  }
  return true;
}

void SavedPlanes::read_state(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
  for (const auto& [file, set] : checkpoint_.planes())
    for (const StoredPlane& stored : stored_planes(file, checkpoint_.state().dtype, format(spec))) {
      if (stored.plane != plane) continue;
      const LocatedTensor& tensor = *set.find(model_.stored_form().stored_name(spec.name) + stored.suffix);
      const size_t element = size_of(stored.dtype);
      const auto read = [&](uint64_t begin, std::span<std::byte> bytes) {
        tensor.file->read_bytes(*tensor.entry, begin * element, bytes);
      };
      if (stored.scales) return read(static_cast<uint64_t>(first / kStateGroup), out);
      return read_in_block_order(spec, element, first, out, read);
    }
  ASSERT(false, "states in {} have no such plane", name_of(format(spec)));
}

void SavedPlanes::read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) {
  model_.read(spec, first, out, NonFinite::refuse);
}

}  // namespace tandem
