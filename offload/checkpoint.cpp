#include "offload/checkpoint.h"

#include <array>
#include <cstring>

#include "core/io/atomic_file.h"
#include "offload/checkpoint_damage.h"
#include "offload/checkpoint_state.h"
#include "offload/folder_in_place.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

/// The planes beside the model's weights, and their files' stem under optimizer/.
struct PlaneFile {
  Plane plane;
  const char* stem;
};
constexpr std::array<PlaneFile, 5> kPlaneFiles = {{{Plane::master, "master"},
                                                   {Plane::exp_avg, "exp_avg"},
                                                   {Plane::exp_avg_sq, "exp_avg_sq"},
                                                   {Plane::lagged, "lagged"},
                                                   {Plane::predicted, "predicted"}}};
const std::string kScaleSuffix = ".scale", kOptimizerPrefix = std::string(kOptimizerFolder) + "/";
constexpr const char* kOtherModel =
    "it belongs to another model, or froze other parameters: check model.path, model.config and model.freeze";

bool is_moment(Plane plane) { return plane == Plane::exp_avg || plane == Plane::exp_avg_sq; }
bool has_scales(Plane plane, MomentFormat moments) {
  return is_moment(plane) && moments == MomentFormat::int8;
}
/// Of a plane of moments.
Plane scales_of(Plane plane) {
  return plane == Plane::exp_avg ? Plane::exp_avg_scale : Plane::exp_avg_sq_scale;
}
uint64_t groups_of(const ParamSpec& spec) {
  return (static_cast<uint64_t>(spec.numel) + kStateGroup - 1) / kStateGroup;
}

/// How a plane's elements are kept, in memory and in files.
struct Element {
  DType dtype;
  std::string_view stored;
};
Element element_of(Plane plane, DType training, MomentFormat moments) {
  const auto of = [](DType dtype) { return Element{dtype, safetensors_name(dtype)}; };
  if (plane == Plane::master || (is_moment(plane) && moments == MomentFormat::fp32)) return of(DType::f32);
  if (!is_moment(plane)) return of(training);
  if (moments == MomentFormat::bf16) return of(DType::bf16);
  return {DType::u8, plane == Plane::exp_avg ? "I8" : "U8"};  // the first moment's codes are signed
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

/// Bytes of a parameter's scales from byte `offset` on.
void fetch_scales(Trainer& trainer, Plane plane, const ParamSpec& spec, uint64_t offset,
                  std::span<std::byte> out) {
  const Tensor piece(out.data(), DType::bf16, {static_cast<int64_t>(out.size() / sizeof(bf16))});
  trainer.read_plane(scales_of(plane), spec.block, piece,
                     spec.offset / kStateGroup + static_cast<int64_t>(offset / sizeof(bf16)));
}

FileSums save_plane(const std::string& folder, const PlaneFile& file, Trainer& trainer,
                    const CheckpointModel& model, MomentFormat moments) {
  const Element element = element_of(file.plane, model.dtype, moments);
  SafetensorsHeader header;
  std::map<std::string, const ParamSpec*> specs, scales;
  for (const ParamSpec& spec : model.table.params()) {
    if (spec.frozen) continue;
    const std::string name = model.form.stored_name(spec.name);
    specs[name] = &spec;
    header.entries.push_back({name, std::string(element.stored), file_shape(spec), 0, 0});
    if (!has_scales(file.plane, moments)) continue;
    scales[name + kScaleSuffix] = &spec;
    header.entries.push_back({name + kScaleSuffix, "BF16", {groups_of(spec)}, 0, 0});
  }
  StoredOrder order(fetch_plane(trainer, file.plane, element.dtype), size_of(element.dtype));
  return write_safetensors_set(folder, file.stem, header, kShardLimit,
                               [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) {
                                 if (const auto scale = scales.find(entry.name); scale != scales.end())
                                   return fetch_scales(trainer, file.plane, *scale->second, offset, out);
                                 order.read(*specs.at(entry.name), offset, out);
                               });
}

/// Everything into the folder, state.json last. Returns the bytes written.
uint64_t write_files(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                     const RunState& state) {
  FileSums sums;
  for (const PlaneFile& file : kPlaneFiles)
    if (state.states && trainer.has_plane(file.plane))
      add(sums, save_plane(folder / kOptimizerFolder, file, trainer, model, state.moments), kOptimizerPrefix);
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

}  // namespace

CheckpointParts largest_save(const TrainSetup& setup, bool states) {
  const bool delayed = setup.policy.schedule == Schedule::delayed;
  return {states, delayed, delayed && setup.prediction > 0, setup.moments};
}

uint64_t checkpoint_bytes(const ParamTable& table, DType dtype, const CheckpointParts& parts) {
  const auto all = static_cast<uint64_t>(table.parameter_count()),
             trained = static_cast<uint64_t>(table.trained_count());
  const uint64_t planes = (parts.lagged ? 1u : 0u) + (parts.predicted ? 1u : 0u);
  const auto held =
      static_cast<uint64_t>(bytes_held({MasterFormat::fp32, parts.moments}) * static_cast<double>(trained));
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
  const RunState& state = checkpoint.state();
  for (const PlaneFile& file : kPlaneFiles)
    if (const auto set = checkpoint.planes().find(file.plane); set != checkpoint.planes().end())
      check(set->second, file.stem, element_of(file.plane, state.dtype, state.moments).stored,
            has_scales(file.plane, state.moments));
}

void SavedPlanes::check(const SafetensorsSet& set, const char* stem, std::string_view dtype,
                        bool scales) const {
  size_t expected = 0;
  for (const ParamSpec& spec : table_.params()) {
    if (spec.frozen) continue;
    const std::string name = model_.stored_form().stored_name(spec.name);
    check_tensor(set, stem, name, dtype, file_shape(spec));
    if (scales) check_tensor(set, stem, name + kScaleSuffix, "BF16", {groups_of(spec)});
    expected += scales ? 2 : 1;
  }
  CHECK(set.tensors().size() == expected, Status::usage,
        fmt::format("the checkpoint has {} tensors of states, the model trains {}", set.tensors().size(),
                    expected),
        checkpoint_.folder() / kOptimizerFolder / (std::string(stem) + ".safetensors"), kOtherModel);
}

void SavedPlanes::check_tensor(const SafetensorsSet& set, const char* stem, const std::string& name,
                               std::string_view dtype, const std::vector<uint64_t>& shape) const {
  const LocatedTensor* tensor = set.find(name);
  CHECK(tensor != nullptr && tensor->entry->shape == shape && tensor->entry->dtype == dtype, Status::usage,
        fmt::format("the checkpoint has no {} of shape {} for this parameter", dtype, shape_text(shape)),
        place_of(checkpoint_.folder() / kOptimizerFolder / (std::string(stem) + ".safetensors"), name),
        kOtherModel);
}

void SavedPlanes::read_tensor(const SafetensorsSet& set, const ParamSpec& spec, size_t element, int64_t first,
                              std::span<std::byte> out) const {
  const LocatedTensor& tensor = *set.find(model_.stored_form().stored_name(spec.name));
  read_in_block_order(spec, element, first, out, [&](uint64_t begin, std::span<std::byte> bytes) {
    tensor.file->read_bytes(*tensor.entry, begin * element, bytes);
  });
}

bool SavedPlanes::read(Plane plane, BlockId block, Tensor out) {
  const auto set = checkpoint_.planes().find(plane);
  if (set == checkpoint_.planes().end()) return false;
  for (const ParamSpec& spec : table_.of_block(block)) {
    if (spec.frozen) continue;
    const Tensor part = out.flat(spec.offset, spec.numel);
    read_tensor(set->second, spec, size_of(out.dtype()), 0,
                {static_cast<std::byte*>(part.raw()), part.bytes()});
  }
  return true;
}

void SavedPlanes::read_moments(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
  const RunState& state = checkpoint_.state();
  if (is_moment(plane))
    return read_tensor(checkpoint_.planes().at(plane), spec,
                       size_of(element_of(plane, state.dtype, state.moments).dtype), first, out);
  const Plane of = plane == Plane::exp_avg_scale ? Plane::exp_avg : Plane::exp_avg_sq;
  const LocatedTensor& scales =
      *checkpoint_.planes().at(of).find(model_.stored_form().stored_name(spec.name) + kScaleSuffix);
  scales.file->read_bytes(*scales.entry, static_cast<uint64_t>(first / kStateGroup) * sizeof(bf16), out);
}

void SavedPlanes::read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) {
  model_.read(spec, first, out, NonFinite::refuse);
}

}  // namespace tandem
