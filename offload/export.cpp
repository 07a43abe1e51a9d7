#include "offload/export.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/io/hf_config.h"
#include "core/io/model_folder.h"
#include "core/math/state_codecs.h"
#include "offload/checkpoint_damage.h"
#include "offload/folder_in_place.h"
#include "offload/run_folder.h"

namespace tandem {

namespace {

/// The folder to read.
struct Source {
  std::string folder;
  std::optional<int64_t> step;     ///< of a checkpoint, which is complete
  bool masters = false;            ///< it has fp32 masters
  std::vector<std::string> notes;  ///< what was passed over
};

Source open_checkpoint(const std::string& folder) {
  CheckedCheckpoint checked = check_checkpoint(folder);
  if (!checked.damage.empty()) throw ErrorList(std::move(checked.damage));
  const FileSums& files = checked.parsed->files;
  const bool masters = files.contains("optimizer/master.safetensors") ||
                       files.contains("optimizer/master.safetensors.index.json");
  return {folder, checked.parsed->state.step, masters, {}};
}

Source newest_complete(const std::string& path) {
  const RunFolder run(path);
  std::vector<std::string> notes;
  for (const int64_t step : run.saved_steps()) {
    try {
      Source source = open_checkpoint(run.checkpoint(step));
      source.notes = std::move(notes);
      return source;
    } catch (const ErrorList& damage) {
      notes.push_back(fmt::format("passed over: {} is not complete ({})",
                                  printable(run.checkpoint(step).string()),
                                  damage.errors().front().message()));
    }
  }
  throw Error(Status::failed, "the run has no complete checkpoint", printable(path),
              fmt::format("tandem inspect {}, which says what is wrong with the newest", printable(path)));
}

Source open_source(const std::string& path) {
  if (is_run(path)) return newest_complete(path);
  if (is_checkpoint(path)) return open_checkpoint(path);
  return {path, std::nullopt, false, {}};
}

/// The folder to write, as a path without links.
fs::path checked_out(const std::string& out, const std::string& input) try {
  const auto refuse = [&](const char* what, const char* hint) {
    throw Error(Status::usage, what, fmt::format("--out {}", printable(out)), hint);
  };
  std::error_code ignored;
  if (fs::is_symlink(out, ignored) && !fs::exists(out, ignored))
    refuse("--out is a link to something that does not exist", "name the folder itself");
  fs::path target = fs::weakly_canonical(fs::absolute(out));
  if (target.filename().empty()) target = target.parent_path();  // "out/"
  const fs::path source = fs::canonical(input);
  if (std::mismatch(source.begin(), source.end(), target.begin(), target.end()).first == source.end())
    refuse("--out is the input folder, or lies in it", "name another folder: the input is never changed");
  if (!fs::exists(target)) return target;
  if (!fs::is_directory(target)) refuse("--out is a file", "name a new folder");
  if (!fs::is_empty(target)) refuse("--out is not empty", "name a new folder: nothing is overwritten");
  return target;
} catch (const fs::filesystem_error& error) {
  throw system_error(error.code().value(), "look at the folder", out);
}

/// One tensor to write, and where its values come from.
struct Item {
  std::string name, dtype;  ///< as they will be stored
  std::vector<uint64_t> shape;
  LocatedTensor from;
  LocatedTensor low = {};  ///< of a master that is held beside its bf16 weight, which is `from`
};

uint64_t bytes_of(const Item& item) { return bytes_needed({item.name, item.dtype, item.shape, 0, 0}, ""); }

template <class T>
void round_into(std::span<const float> values, std::span<std::byte> out, const Item& item) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T rounded = round_weight<T>(values[i]);
    CHECK(!non_finite(rounded) || non_finite(values[i]), Status::failed,
          fmt::format("the weight {} has no finite value in {}", values[i], item.dtype), item.from.place(),
          "--dtype float32, or bfloat16, which reaches as far");
    std::memcpy(&out[i * sizeof(T)], &rounded, sizeof(T));
  }
}

/// Makes masters of the bf16 weights from element `first` on.
void add_low(const Item& item, uint64_t first, std::span<float> values) {
  const bool split = item.low.entry->dtype == "U16";
  const size_t element = split ? sizeof(uint16_t) : sizeof(int8_t);
  std::vector<std::byte> low(values.size() * element);
  item.low.file->read_bytes(*item.low.entry, first * element, low);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t upper = bits_of(values[i]) >> 16;
    uint16_t half = 0;
    int8_t error = 0;
    std::memcpy(split ? static_cast<void*>(&half) : &error, &low[i * element], element);
    values[i] = split ? split_joined<float>(upper, half)
                      : ulp8_joined<float>(upper, static_cast<uint32_t>(int32_t{error}));
  }
}

/// Stored bytes of the item from `offset` on.
void read_item(const Item& item, uint64_t offset, std::span<std::byte> out) {
  if (item.from.entry->dtype == item.dtype) return item.from.file->read_bytes(*item.from.entry, offset, out);
  const DType dtype = dtype_of(item.dtype).value();
  std::vector<float> values(out.size() / size_of(dtype));
  item.from.file->read(*item.from.entry, offset / size_of(dtype), values);
  if (item.low.entry != nullptr) add_low(item, offset / size_of(dtype), values);
  if (dtype == DType::bf16) return round_into<bf16>(values, out, item);
  if (dtype == DType::f16) return round_into<f16>(values, out, item);
  round_into<float>(values, out, item);
}

class Export {
 public:
  Export(const ExportOptions& options, Source source)
      : dtype_(options.dtype),
        source_(std::move(source)),
        model_(source_.folder, options.access),
        table_(model_.arch()) {
    result_.out = options.out;
    result_.source = source_.folder;
    result_.step = source_.step;
    result_.notes = source_.notes;
    list_items(options.access);
    note_what_is_left_out();
  }

  ExportResult write(const fs::path& out) {
    check_disk(out);
    write_in_place(out, Existing::kept, [&](const fs::path& partial) {
      for (const auto& [name, sum] : write_files(partial)) result_.bytes += sum.bytes;
    });
    return std::move(result_);
  }

 private:
  void list_items(FileAccess access) {
    if (source_.masters && dtype_) masters_.emplace(source_.folder + "/optimizer", "master", access);
    for (const ParamSpec& spec : table_.params()) add_item(model_.stored_form().stored_name(spec.name), spec);
    if (model_.stored_form().head_beside_tied_embedding) add_item(kHeadName, table_.params().front());
    std::set<std::string> dtypes;
    for (const Item& item : items_) dtypes.insert(item.dtype);
    if (source_.step && dtype_ && !source_.masters)
      result_.notes.emplace_back("the checkpoint has no fp32 masters: its weights are converted");
    result_.tensors = items_.size();
    result_.dtype = common_dtype(dtypes);
    if (dtypes.size() == 1) common_ = dtype_of(*dtypes.begin());
  }

  void add_item(const std::string& name, const ParamSpec& spec) {
    const LocatedTensor& stored = *model_.weights().find(name);
    Item item{name, stored.entry->dtype, stored.entry->shape, stored};
    if (dtype_) item.dtype = safetensors_name(*dtype_);
    if (masters_ && item.dtype != stored.entry->dtype)
      if (const std::string master = model_.stored_form().stored_name(spec.name);
          const LocatedTensor* found = masters_->find(master)) {  // a frozen parameter has none
        item.from = *found;
        if (const LocatedTensor* low = masters_->find(master + ".low")) item.low = *low;
      }
    items_.push_back(std::move(item));
  }

  void note_what_is_left_out() {
    std::vector<std::string> tensors, files;
    for (const auto& [name, tensor] : model_.weights().tensors())
      if (std::ranges::find(items_, name, &Item::name) == items_.end()) tensors.push_back(name);
    if (!tensors.empty())
      result_.notes.push_back("left out: tensors that are no parameters of the model: " + name_list(tensors));
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(source_.folder, ignored))
      if (const std::string name = entry.path().filename().string(); !is_taken(name)) files.push_back(name);
    std::ranges::sort(files);
    if (!files.empty()) result_.notes.push_back("left out: " + name_list(files));
  }

  /// Of the input's files those that are written, or whose place another takes.
  [[nodiscard]] bool is_taken(const std::string& name) const {
    const auto listed = [&](std::span<const std::string_view> names) {
      return std::ranges::find(names, name) != names.end();
    };
    return name == "config.json" || name == "model.safetensors.index.json" || listed(kGenerationConfig) ||
           listed(kTokenizerFiles) || std::ranges::any_of(model_.weights().files(), [&](const auto& file) {
             return fs::path(file->path()).filename() == name;
           });
  }

  [[nodiscard]] std::string config_text() const {
    const std::string& text = model_.config_text();
    if (!common_) return text;
    return with_stored_dtype(text, parse_hf_json(text, source_.folder + "/config.json"), *common_);
  }

  void check_disk(const fs::path& out) const {
    uint64_t need = 0;
    for (const Item& item : items_) need += bytes_of(item);
    const uint64_t free = free_disk_bytes(out);
    CHECK(need <= free, Status::does_not_fit,
          fmt::format("the weights need {} bytes, but {} are free", need, free),
          fmt::format("--out {}", printable(out.string())), "make room, or name a folder on another disk");
  }

  FileSums write_files(const fs::path& folder) {
    SafetensorsHeader header{{}, model_.stored_form().metadata};
    std::map<std::string, const Item*> by_name;
    for (const Item& item : items_) {
      header.entries.push_back({item.name, item.dtype, item.shape, 0, 0});
      by_name[item.name] = &item;
    }
    FileSums sums = write_safetensors_set(
        folder, "model", header, kShardLimit,
        [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> bytes) {
          read_item(*by_name.at(entry.name), offset, bytes);
        });
    sums["config.json"] = write_atomically(folder / "config.json", config_text());
    sums.merge(copy_files(source_.folder, folder, kGenerationConfig));
    sums.merge(copy_files(source_.folder, folder, kTokenizerFiles));
    return sums;
  }

  const std::optional<DType> dtype_;
  const Source source_;
  const ModelFolder model_;
  const ParamTable table_;
  std::optional<SafetensorsSet> masters_;
  std::vector<Item> items_;
  std::optional<DType> common_;  ///< the one dtype of all items
  ExportResult result_;
};

}  // namespace

ExportResult export_model(const ExportOptions& options) {
  std::error_code ignored;
  CHECK(fs::exists(options.path, ignored), Status::usage, "no such folder", printable(options.path),
        "name a Hugging Face model folder, a checkpoint or a run folder");
  const fs::path out = checked_out(options.out, options.path);
  return Export(options, open_source(options.path)).write(out);
}

}  // namespace tandem
