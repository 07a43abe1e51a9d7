#include "offload/checkpoint.h"

#include <fcntl.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "core/io/atomic_file.h"
#include "offload/checkpoint_state.h"
#include "offload/run_folder.h"

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

DType dtype_of(const PlaneFile& file, DType dtype) { return file.fp32 ? DType::f32 : dtype; }

/// Bytes of one parameter's plane, from byte `offset` on. Nothing but the piece asked for is held.
void read_piece(Trainer& trainer, Plane plane, DType dtype, const ParamSpec& spec, uint64_t offset,
                std::span<std::byte> out) {
  const Tensor piece(out.data(), dtype, {static_cast<int64_t>(out.size() / size_of(dtype))});
  trainer.read_plane(plane, spec.block, piece, spec.offset + static_cast<int64_t>(offset / size_of(dtype)));
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

FileSums save_plane(const std::string& folder, const PlaneFile& file, Trainer& trainer,
                    const CheckpointModel& model) {
  const DType dtype = dtype_of(file, model.dtype);
  SafetensorsHeader header;
  for (const ParamSpec& spec : model.table.params())
    header.entries.push_back(
        {spec.name, std::string(safetensors_name(dtype)), {spec.shape.begin(), spec.shape.end()}, 0, 0});
  return write_safetensors_set(folder, file.stem, header, kShardLimit,
                               [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) {
                                 const ParamSpec& spec = *model.table.find(entry.name);
                                 read_piece(trainer, file.plane, dtype, spec, offset, out);
                                 if (holds_weights(file.plane)) refuse_nonfinite(spec, dtype, out);
                               });
}

/// Everything into the folder, state.json last. Returns the bytes written.
uint64_t write_files(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                     const RunState& state) {
  FileSums sums;
  for (const PlaneFile& file : kPlaneFiles)
    if (trainer.has_plane(file.plane))
      add(sums, save_plane(folder / "optimizer", file, trainer, model), "optimizer/");
  add(sums, save_weights(folder, model.table, model.dtype, model.form,
                         [&](const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
                           read_piece(trainer, Plane::weights, model.dtype, spec,
                                      static_cast<uint64_t>(first) * size_of(model.dtype), out);
                           refuse_nonfinite(spec, model.dtype, out);
                         }));
  sums["config.json"] = write_atomically(folder / "config.json", model.config_json);
  if (model.model) add(sums, copy_files(*model.model, folder, kGenerationConfig));
  if (model.tokenizer) add(sums, copy_files(*model.tokenizer, folder, kTokenizerFiles));
  uint64_t bytes =
      write_atomically(folder / kStateFile, json::dump(render_state(state, sums), 2) + "\n").bytes;
  for (const auto& [name, sum] : sums) bytes += sum.bytes;
  return bytes;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "create the folder", folder);
}

/// Gives the finished folder its name. An older one of that name changes places with it, so that there is a
/// complete one at every moment where the file system can do that.
void put_in_place(const fs::path& partial, const fs::path& folder) {
  std::error_code error;
  fs::rename(partial, folder, error);
  if (!error) return;
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    fs::remove_all(folder, error);
    fs::rename(partial, folder, error);
    if (error) throw system_error(error.value(), "put the checkpoint in place", folder);
  }
  fs::remove_all(partial, error);
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

uint64_t checkpoint_bytes(const ParamTable& table, DType dtype, bool lagged, bool predicted) {
  const uint64_t planes16 = 1u + (lagged ? 1u : 0u) + (predicted ? 1u : 0u);
  return static_cast<uint64_t>(table.parameter_count()) * (3 * sizeof(float) + planes16 * size_of(dtype));
}

uint64_t save_checkpoint(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                         const RunState& state) {
  const fs::path partial = partial_of(folder);
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  try {
    make_folder(partial / "optimizer");
    const Reading reading(trainer);
    const uint64_t bytes = write_files(partial, trainer, model, state);
    sync_folder(partial / "optimizer");
    sync_folder(partial);
    put_in_place(partial, folder);
    sync_folder(folder.parent_path());
    return bytes;
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
}

Checkpoint::Checkpoint(fs::path folder) : folder_(std::move(folder)) {
  const fs::path state = folder_ / kStateFile;
  std::error_code ignored;
  CHECK(fs::exists(state, ignored), Status::failed, "the checkpoint is incomplete: it has no state.json",
        folder_, "--resume auto, or the path of a complete step-... folder");
  const json::Document document = json::parse_file(state, {.status = Status::failed});
  ParsedState parsed = parse_state(json::Node(document));
  for (const auto& [name, sum] : parsed.files) verify(folder_, name, sum);
  state_ = std::move(parsed.state);
  for (const PlaneFile& file : kPlaneFiles) {
    const std::string name = std::string("optimizer/") + file.stem + ".safetensors";
    if (parsed.files.contains(name) || parsed.files.contains(name + ".index.json"))
      planes_.emplace(file.plane, SafetensorsSet(folder_ / "optimizer", file.stem));
  }
  for (const Plane plane : {Plane::master, Plane::exp_avg, Plane::exp_avg_sq})
    CHECK(planes_.contains(plane), Status::failed, "the checkpoint has no masters or moments", folder_,
          "resume from another checkpoint, or start a new run with model.path set to this one");
}

SavedPlanes::SavedPlanes(const Checkpoint& checkpoint, const ParamTable& table)
    : checkpoint_(checkpoint), table_(table) {
  for (const PlaneFile& file : kPlaneFiles) {
    const auto set = checkpoint.planes().find(file.plane);
    if (set == checkpoint.planes().end()) continue;
    const auto dtype = safetensors_name(dtype_of(file, checkpoint.state().dtype));
    for (const ParamSpec& spec : table.params()) {
      const LocatedTensor* tensor = set->second.find(spec.name);
      const std::vector<uint64_t> shape(spec.shape.begin(), spec.shape.end());
      CHECK(
          tensor != nullptr && tensor->entry->shape == shape && tensor->entry->dtype == dtype, Status::usage,
          fmt::format("the checkpoint has no {} of shape {} for this parameter", dtype, shape_text(shape)),
          place_of(checkpoint.folder() / "optimizer" / (std::string(file.stem) + ".safetensors"), spec.name),
          "it belongs to another model: check model.path and model.config");
    }
    CHECK(set->second.tensors().size() == table.params().size(), Status::usage,
          fmt::format("the checkpoint has {} parameters, the model {}", set->second.tensors().size(),
                      table.params().size()),
          checkpoint.folder(), "it belongs to another model: check model.path and model.config");
  }
}

bool SavedPlanes::read(Plane plane, BlockId block, Tensor out) {
  const auto set = checkpoint_.planes().find(plane);
  if (set == checkpoint_.planes().end()) return false;
  for (const ParamSpec& spec : table_.of_block(block)) {
    const LocatedTensor& tensor = *set->second.find(spec.name);
    const Tensor part = out.flat(spec.offset, spec.numel);
    tensor.file->read_bytes(*tensor.entry, 0, {static_cast<std::byte*>(part.raw()), part.bytes()});
  }
  return true;
}

}  // namespace tandem
