#include "offload/checkpoint.h"

#include <array>
#include <cstring>

#include "core/io/atomic_file.h"
#include "offload/checkpoint_state.h"

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

/// Gives out parameters of a plane, one block in memory at a time.
class PlaneReader {
 public:
  PlaneReader(Trainer& trainer, const ParamTable& table, Plane plane, DType dtype)
      : trainer_(trainer), table_(table), plane_(plane), dtype_(dtype) {}
  void read(const ParamSpec& spec, uint64_t offset, std::span<std::byte> out) {
    if (spec.block != loaded_) load(spec.block);
    const auto begin = static_cast<size_t>(spec.offset) * size_of(dtype_) + offset;
    std::memcpy(out.data(), memory_.data() + begin, out.size());
  }

 private:
  void load(BlockId block) {
    const int64_t numel = table_.block(block).numel;
    memory_.resize(static_cast<size_t>(numel) * size_of(dtype_));
    trainer_.read_plane(plane_, block, Tensor(memory_.data(), dtype_, {numel}));
    loaded_ = block;
  }
  Trainer& trainer_;
  const ParamTable& table_;
  const Plane plane_;
  const DType dtype_;
  BlockId loaded_ = -1;
  std::vector<std::byte> memory_;
};

void refuse_nonfinite_master(const ParamSpec& spec, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    CHECK(!non_finite(value), Status::failed, "a weight is not finite: the checkpoint is not written",
          spec.name, "resume from the last good checkpoint with a lower lr or gradient_clipping");
  }
}

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
  PlaneReader reader(trainer, model.table, file.plane, dtype);
  return write_safetensors_set(folder, file.stem, header, kShardLimit,
                               [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) {
                                 const ParamSpec& spec = *model.table.find(entry.name);
                                 reader.read(spec, offset, out);
                                 if (file.plane == Plane::master) refuse_nonfinite_master(spec, out);
                               });
}

/// Everything into the folder, state.json last.
void write_files(const fs::path& folder, Trainer& trainer, const CheckpointModel& model,
                 const RunState& state) {
  FileSums sums;
  for (const PlaneFile& file : kPlaneFiles)
    if (trainer.has_plane(file.plane))
      add(sums, save_plane(folder / "optimizer", file, trainer, model), "optimizer/");
  PlaneReader weights(trainer, model.table, Plane::weights, model.dtype);
  add(sums, save_weights(folder, model.table, model.dtype, model.form,
                         [&](const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
                           weights.read(spec, static_cast<uint64_t>(first) * size_of(model.dtype), out);
                         }));
  sums["config.json"] = write_atomically(folder / "config.json", model.config_json);
  if (model.model) add(sums, copy_files(*model.model, folder, kGenerationConfig));
  if (model.tokenizer) add(sums, copy_files(*model.tokenizer, folder, kTokenizerFiles));
  write_atomically(folder / kStateFile, json::dump(render_state(state, sums), 2) + "\n");
}

uint64_t size_below(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "create the folder", folder);
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
  const fs::path partial = folder.parent_path() / ("." + folder.filename().string() + ".partial");
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  try {
    make_folder(partial / "optimizer");
    const Reading reading(trainer);
    write_files(partial, trainer, model, state);
    sync_folder(partial / "optimizer");
    sync_folder(partial);
    const uint64_t bytes = size_below(partial);
    fs::remove_all(folder, ignored);  // an incomplete one of the same step, or one that is saved again
    std::error_code error;
    fs::rename(partial, folder, error);
    if (error) throw system_error(error.value(), "put the checkpoint in place", folder);
    sync_folder(folder.parent_path());
    return bytes;
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
}

Checkpoint::Checkpoint(fs::path folder, const ParamTable& table) : folder_(std::move(folder)), table_(table) {
  const fs::path state = folder_ / kStateFile;
  std::error_code ignored;
  CHECK(fs::exists(state, ignored), Status::failed, "the checkpoint is incomplete: it has no state.json",
        folder_, "resume from another checkpoint, or give --resume auto");
  const json::Document document = json::parse_file(state, {.status = Status::failed});
  ParsedState parsed = parse_state(json::Node(document));
  for (const auto& [name, sum] : parsed.files) verify(folder_, name, sum);
  state_ = std::move(parsed.state);
  for (const PlaneFile& file : kPlaneFiles) {
    const std::string stem = std::string("optimizer/") + file.stem;
    if (!parsed.files.contains(stem + ".safetensors") &&
        !parsed.files.contains(stem + ".safetensors.index.json"))
      continue;
    const SafetensorsSet& set =
        planes_.emplace(file.plane, SafetensorsSet(folder_ / "optimizer", file.stem)).first->second;
    const auto expected_dtype = safetensors_name(dtype_of(file, state_.dtype));
    for (const ParamSpec& spec : table_.params()) {
      const LocatedTensor* tensor = set.find(spec.name);
      const std::vector<uint64_t> shape(spec.shape.begin(), spec.shape.end());
      CHECK(tensor != nullptr && tensor->entry->shape == shape && tensor->entry->dtype == expected_dtype,
            Status::failed,
            fmt::format("the checkpoint has no {} of shape {} for this parameter", expected_dtype,
                        shape_text(shape)),
            place_of(folder_ / (stem + ".safetensors"), spec.name),
            "it belongs to another model: check model.path and model.config");
    }
  }
  CHECK(planes_.contains(Plane::master), Status::failed, "the checkpoint has no masters", folder_,
        "resume from another checkpoint");
}

bool Checkpoint::read(Plane plane, BlockId block, Tensor out) {
  const auto set = planes_.find(plane);
  if (set == planes_.end()) return false;
  for (const ParamSpec& spec : table_.of_block(block)) {
    const LocatedTensor& tensor = *set->second.find(spec.name);
    const Tensor part = out.flat(spec.offset, spec.numel);
    tensor.file->read_bytes(*tensor.entry, 0, {static_cast<std::byte*>(part.raw()), part.bytes()});
  }
  return true;
}

}  // namespace tandem
