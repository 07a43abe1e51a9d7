#include "offload/inspection.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/data/token_file.h"
#include "core/io/model_folder.h"
#include "offload/checkpoint_damage.h"
#include "offload/run_folder.h"

namespace tandem {

namespace {

constexpr uint64_t kPiece = 1 << 20;  // elements read at a time

/// A file whose first bytes could be those of a safetensors file, or whose name says that it is one.
bool is_safetensors(const std::string& path) {
  if (path.ends_with(".safetensors")) return true;
  try {
    const File file(path);
    if (file.size() < 9) return false;
    uint64_t header_bytes = 0;
    char first = 0;
    file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
    file.read(8, std::as_writable_bytes(std::span(&first, 1)));
    return first == '{' && header_bytes <= file.size() - 8;
  } catch (const Error&) {
    return false;  // whoever opens it next says why
  }
}

uint64_t elements_of(const SafetensorsEntry& entry) {
  uint64_t count = 1;
  for (const uint64_t dim : entry.shape) count *= dim;
  return count;
}

/// Adds up one tensor, piece by piece. T: float, or double for F64, which must not be rounded here.
template <class T>
void add_up(const LocatedTensor& tensor, TensorFacts& facts) {
  const uint64_t count = elements_of(*tensor.entry);
  double sum = 0;
  uint64_t bad = 0;
  std::vector<T> piece;
  for (uint64_t done = 0; done < count; done += piece.size()) {
    piece.resize(std::min(kPiece, count - done));
    if constexpr (std::is_same_v<T, double>)
      tensor.file->read_bytes(*tensor.entry, done * sizeof(T), std::as_writable_bytes(std::span(piece)));
    else
      tensor.file->read(*tensor.entry, done, piece);
    for (const T x : piece) {
      sum += static_cast<double>(x);
      bad += std::isfinite(x) ? 0 : 1;
    }
  }
  facts.sum = sum;
  facts.nonfinite = bad;
}

/// Collects the facts and problems of one path.
class Inspector {
 public:
  Inspector(InspectedKind kind, std::string path, const InspectOptions& options) : options_(options) {
    found_.kind = kind;
    found_.path = std::move(path);
  }

  void checkpoint() {
    CheckedCheckpoint checked = check_checkpoint(found_.path);
    found_.hashes_match = checked.damage.empty();
    found_.problems = std::move(checked.damage);
    if (checked.parsed) {
      found_.state = std::move(checked.parsed->state);
      for (const auto& [name, sum] : checked.parsed->files) add_file(name, sum.bytes);
      add_file(kStateFile, fs::file_size(fs::path(found_.path) / kStateFile));
    }
    model();
  }

  void model() {
    std::optional<SafetensorsSet> set;
    std::optional<Arch> arch;
    attempt([&] { arch = read_arch(found_.path); });
    if (!attempt([&] { set.emplace(found_.path); })) return loose_files();
    if (!found_.state)
      for (const auto& file : set->files())
        add_file(fs::path(file->path()).filename().string(), file->file().size());
    WeightFacts& weights = found_.weights.emplace();
    std::vector<LocatedTensor> tensors;
    for (const auto& [name, tensor] : set->tensors()) tensors.push_back(tensor);
    describe(tensors);
    if (arch) {
      weights.model_type = arch->model_type;
      compare(*arch, *set);
    }
  }

  void safetensors() {
    attempt([&] {
      const SafetensorsFile file(found_.path);
      add_file(fs::path(found_.path).filename().string(), file.file().size());
      found_.weights.emplace();
      describe(tensors_of(file));
    });
  }

  void tokens() {
    attempt([&] {
      const TokenFile file = open_tokens();
      add_file(fs::path(found_.path).filename().string(), file.file().size());
      TokenFacts& facts = found_.tokens.emplace();
      facts.tokens = file.tokens();
      if (options_.data) facts.largest_id = largest_of(file);
    });
  }

  void no_checkpoint(const std::string& run) {
    found_.problems.emplace_back(Status::failed, "the run has no checkpoint yet", printable(run),
                                 "let it reach its first save (checkpoint.every)");
  }

  [[nodiscard]] Inspection& found() { return found_; }

 private:
  /// False, with one more problem, if the work threw what a user should read.
  template <class Work>
  bool attempt(const Work& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      found_.problems.push_back(error);
      return false;
    }
  }

  void add_file(std::string name, uint64_t bytes) {
    found_.files.push_back(std::move(name));
    found_.bytes += bytes;
  }

  static std::vector<LocatedTensor> tensors_of(const SafetensorsFile& file) {
    std::vector<LocatedTensor> tensors;
    for (const SafetensorsEntry& entry : file.entries()) tensors.push_back({&file, &entry});
    return tensors;
  }

  /// Of weights that are no whole set: whatever can be read of the folder's safetensors files.
  void loose_files() {
    std::vector<std::string> paths;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(found_.path, ignored))
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
    std::ranges::sort(paths);
    std::vector<std::unique_ptr<SafetensorsFile>> files;
    std::vector<LocatedTensor> tensors;
    const std::string said = found_.problems.back().what();
    for (const std::string& path : paths) {
      try {
        files.push_back(std::make_unique<SafetensorsFile>(path));
      } catch (const Error& error) {
        if (error.what() != said) found_.problems.push_back(error);
        continue;
      }
      if (!found_.state) add_file(fs::path(path).filename().string(), files.back()->file().size());
      std::ranges::copy(tensors_of(*files.back()), std::back_inserter(tensors));
    }
    if (files.empty()) return;
    found_.weights.emplace();
    describe(tensors);
  }

  /// What the tensors are by themselves, whatever model they may belong to.
  void describe(std::vector<LocatedTensor> tensors) {
    WeightFacts& weights = *found_.weights;
    std::ranges::sort(tensors, {}, [](const LocatedTensor& t) {
      return std::pair(std::string_view(t.file->path()), t.entry->begin);
    });
    std::set<std::string> dtypes;
    for (const LocatedTensor& tensor : tensors) {
      weights.parameters += elements_of(*tensor.entry);
      dtypes.insert(tensor.entry->dtype);
      if (options_.data) weights.tensors.push_back(read(tensor));
    }
    weights.dtype = common_dtype(dtypes);
    weights.tensors_found = tensors.size();
  }

  TensorFacts read(const LocatedTensor& tensor) {
    TensorFacts facts{tensor.entry->name, tensor.entry->dtype, tensor.entry->shape, {}, {}};
    if (!converts_to_float(*tensor.entry)) return facts;
    attempt(
        [&] { tensor.entry->dtype == "F64" ? add_up<double>(tensor, facts) : add_up<float>(tensor, facts); });
    if (facts.nonfinite.value_or(0) > 0)
      found_.problems.emplace_back(
          Status::failed,
          fmt::format("{} of {} values are infinite or NaN", *facts.nonfinite, elements_of(*tensor.entry)),
          tensor.place(), "take an earlier checkpoint of the model");
    return facts;
  }

  /// The weights against the architecture; a whole model counts as one.
  void compare(const Arch& arch, const SafetensorsSet& set) {
    const std::vector<Error> faults = parameter_faults(arch, set, found_.path);
    std::ranges::copy(faults, std::back_inserter(found_.problems));
    if (!faults.empty()) return;
    attempt([&] {
      const ModelFolder folder(found_.path);
      found_.notes = folder.warnings();
      count_parameters(folder);
    });
  }

  void count_parameters(const ModelFolder& folder) {
    const ParamTable table(folder.arch());
    std::set<std::string> dtypes;
    for (const ParamSpec& spec : table.params())
      dtypes.insert(folder.weights().find(folder.stored_form().stored_name(spec.name))->entry->dtype);
    found_.weights->parameters = static_cast<uint64_t>(table.parameter_count());
    found_.weights->dtype = common_dtype(dtypes);
  }

  /// No model limits the ids here. Files of 16-bit tokens refuse a vocabulary that they can't serve.
  [[nodiscard]] TokenFile open_tokens() const {
    const TokenFormat format = options_.format.value_or(TokenFormat::automatic);
    try {
      return {found_.path, format, INT32_MAX};
    } catch (const Error&) {
      return {found_.path, format, UINT16_MAX + 1};
    }
  }

  static int64_t largest_of(const TokenFile& file) {
    int32_t largest = -1;
    std::vector<int32_t> piece;
    for (uint64_t done = 0; done < file.tokens(); done += piece.size()) {
      piece.resize(std::min(kPiece, file.tokens() - done));
      file.read(done, piece);
      largest = std::max(largest, std::ranges::max(piece));
    }
    return largest;
  }

  const InspectOptions& options_;
  Inspection found_;
};

Inspection inspect_run(const std::string& path, const InspectOptions& options) {
  const RunFolder run(path);
  const std::vector<int64_t> steps = run.saved_steps();
  Inspector inspector(InspectedKind::checkpoint,
                      steps.empty() ? path : run.checkpoint(steps.front()).string(), options);
  if (steps.empty())
    inspector.no_checkpoint(path);
  else
    inspector.checkpoint();
  if (!steps.empty())
    inspector.found().notes.insert(
        inspector.found().notes.begin(),
        fmt::format("the newest checkpoint of the run folder {} is looked at", printable(path)));
  return std::move(inspector.found());
}

}  // namespace

std::string_view name_of(InspectedKind kind) {
  constexpr std::string_view kNames[] = {"checkpoint", "model", "safetensors", "tokens"};
  return kNames[static_cast<size_t>(kind)];
}

Inspection inspect(const std::string& path, const InspectOptions& options) {
  std::error_code ignored;
  CHECK(fs::exists(path, ignored), Status::usage,
        fs::is_symlink(path, ignored) ? "a link to something that does not exist" : "no such file or folder",
        printable(path), "check the path");
  const bool folder = fs::is_directory(path, ignored);
  CHECK(!folder || !options.format, Status::usage, "--format goes with a token file, but this is a folder",
        printable(path), "leave --format away, or name the file itself");
  if (folder && is_run(path)) return inspect_run(path, options);
  const auto run = [&](InspectedKind kind, void (Inspector::*look)()) {
    Inspector inspector(kind, path, options);
    (inspector.*look)();
    return std::move(inspector.found());
  };
  if (folder && is_checkpoint(path)) return run(InspectedKind::checkpoint, &Inspector::checkpoint);
  if (folder) return run(InspectedKind::model, &Inspector::model);
  if (!options.format && is_safetensors(path))
    return run(InspectedKind::safetensors, &Inspector::safetensors);
  return run(InspectedKind::tokens, &Inspector::tokens);
}

}  // namespace tandem
