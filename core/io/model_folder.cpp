#include "core/io/model_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/glob.h"
#include "core/io/hf_config.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIgnored[] = {"*.rotary_emb.inv_freq", "*.attn.bias",
                                         "*.attn.masked_bias"};  // buffers of old versions, computed anew
constexpr std::string_view kGpt2Prefix = "transformer.";
constexpr uint64_t kLargestConfig = 16 << 20;

std::string checked_folder(std::string path) {
  std::error_code ignored;
  CHECK(fs::exists(path, ignored), Status::usage, "no such folder", printable(path),
        "name a Hugging Face model folder (config.json, *.safetensors)");
  CHECK(fs::is_directory(path, ignored), Status::usage, "a file where a model folder is needed",
        printable(path), "name the folder that holds config.json");
  return path;
}

std::string read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::error_code ignored;
  CHECK(fs::symlink_status(path, ignored).type() != fs::file_type::not_found, Status::failed,
        "the folder holds no config.json, so it is no model folder", printable(folder),
        "download the model again, all files of it");
  return read_text(path, kLargestConfig, Status::failed);
}

Arch arch_of(const std::string& config_text, const std::string& folder) {
  const json::Document document = parse_hf_json(config_text, folder + "/config.json");
  return parse_hf_config(json::Node(document));
}

/// Why a parameter may be missing, from what is there instead.
std::string advice(const ParamSpec& spec, const SafetensorsSet& weights) {
  if (spec.name == kHeadName)
    return "if the head is the embedding, set tie_word_embeddings to true in config.json; it is never made "
           "up";
  if (weights.tensors().empty()) return "the files hold no tensors at all: download the model again";
  return fmt::format("the files hold names like \"{}\": save the whole model with save_pretrained",
                     printable(weights.tensors().begin()->first));
}

/// What quantised checkpoints hold beside a weight or in its place.
constexpr std::pair<std::string_view, const char*> kQuantised[] = {{".qweight", "GPTQ or AWQ"},
                                                                   {".weight_scale_inv", "FP8"},
                                                                   {".weight_scale", "FP8"},
                                                                   {".SCB", "bitsandbytes"},
                                                                   {".weight.absmax", "bitsandbytes"}};

void check_not_quantised(const ParamSpec& spec, const SafetensorsSet& weights, const std::string& folder) {
  const std::string layer = spec.name.substr(0, spec.name.rfind('.'));
  for (const auto& [suffix, method] : kQuantised) {
    const std::string name = layer + std::string(suffix);
    CHECK(weights.find(name) == nullptr, Status::failed,
          fmt::format("the checkpoint is quantised ({})", method), place_of(folder, name),
          "dequantise it first, or train from the original 16-bit checkpoint");
  }
}

void check_parameter(const ParamSpec& spec, const LocatedTensor* stored, const SafetensorsSet& weights,
                     const std::string& folder) {
  check_not_quantised(spec, weights, folder);
  if (stored == nullptr)
    throw Error(Status::failed, "this weight is missing", place_of(folder, spec.name), advice(spec, weights));
  const std::string& dtype = stored->entry->dtype;
  CHECK(converts_to_float(*stored->entry), Status::failed,
        fmt::format("weights of dtype {} can't be trained", dtype), stored->place(),
        dtype.starts_with("F8") ? "the checkpoint is quantised (FP8): dequantise it to BF16 first"
                                : "the checkpoint seems quantised: dequantise it to BF16, F16 or F32 first");
  const std::vector<uint64_t> shape = file_shape(spec);
  CHECK(stored->entry->shape == shape, Status::failed,
        fmt::format("the shape is {}, but config.json makes it {}", shape_text(stored->entry->shape),
                    shape_text(shape)),
        stored->place(), "take config.json and weights from the same model");
}

/// Of the form, what the weights' names tell.
StoredForm form_of(const Arch& arch, const SafetensorsSet& weights) {
  StoredForm form{.metadata = weights.metadata()};
  if (arch.naming == Naming::gpt2 && weights.find("wte.weight") != nullptr)
    form.dropped_prefix = kGpt2Prefix;  // as in the hub's own gpt2
  return form;
}

/// Both tensors hold the same values.
bool same_values(const LocatedTensor& a, const LocatedTensor& b, uint64_t count) {
  constexpr uint64_t kChunk = 1 << 20;
  std::vector<float> left, right;
  for (uint64_t done = 0; done < count; done += left.size()) {
    left.resize(std::min(kChunk, count - done));
    right.resize(left.size());
    a.file->read(*a.entry, done, left);
    b.file->read(*b.entry, done, right);
    // As bits: NaN equals itself, and the sign of zero counts.
    if (std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

bool ignored_silently(const std::string& name) {
  return std::ranges::any_of(kIgnored, [&](std::string_view glob) { return glob_matches(glob, name); });
}

}  // namespace

Arch read_arch(const std::string& folder) { return arch_of(read_config(folder), folder); }

std::vector<Error> parameter_faults(const Arch& arch, const SafetensorsSet& weights,
                                    const std::string& folder) {
  const StoredForm form = form_of(arch, weights);
  std::vector<Error> faults;
  const ParamTable table(arch);
  for (const ParamSpec& spec : table.params()) {
    try {
      check_parameter(spec, weights.find(form.stored_name(spec.name)), weights, folder);
    } catch (const Error& fault) {
      faults.push_back(fault);
    }
  }
  return faults;
}

ModelFolder::ModelFolder(std::string path, FileAccess access)
    : path_(checked_folder(std::move(path))),
      config_text_(read_config(path_)),
      arch_(arch_of(config_text_, path_)),
      weights_(path_, "model", access),
      form_(form_of(arch_, weights_)),
      warnings_(weights_.warnings()) {
  if (const auto faults = parameter_faults(arch_, weights_, path_); !faults.empty()) throw faults.front();
  const ParamTable table(arch_);
  note_parameters(table);
  if (arch_.tied && weights_.find(kHeadName) != nullptr) check_tied_head(table);
  note_strays();
}

void ModelFolder::note_parameters(const ParamTable& table) {
  bool wide = false;
  for (const ParamSpec& spec : table.params()) wide = wide || find(spec.name)->entry->dtype == "F64";
  if (wide) warnings_.push_back("weights stored as F64 are rounded to fp32");
  std::set<std::string> names = {arch_.tied ? kHeadName : ""};
  for (const ParamSpec& spec : table.params()) names.insert(form_.stored_name(spec.name));
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : weights_.tensors()) {
    const bool known = names.contains(name) || ignored_silently(name);
    if (!known) unknown.push_back(name);
  }
  if (!unknown.empty())
    warnings_.push_back(fmt::format("ignored: tensors that a {} model has no use for: {}", arch_.model_type,
                                    name_list(unknown)));
}

void ModelFolder::check_tied_head(const ParamTable& table) {
  const std::string& name = table.params().front().name;  // the embedding
  const LocatedTensor &head = *weights_.find(kHeadName), &embedding = *find(name);
  const auto count = static_cast<uint64_t>(arch_.vocab) * static_cast<uint64_t>(arch_.hidden);
  const bool same = converts_to_float(*head.entry) && head.entry->shape == embedding.entry->shape &&
                    same_values(head, embedding, count);
  CHECK(same, Status::failed,
        fmt::format("config.json ties the head to the embedding, but the stored head differs from \"{}\"",
                    name),
        head.place(),
        "set tie_word_embeddings to false in config.json to train both, or remove the stored head");
  form_.head_beside_tied_embedding = true;
}

void ModelFolder::note_strays() {
  std::vector<std::string> strays;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool read = std::ranges::any_of(
        weights_.files(), [&](const auto& file) { return fs::path(file->path()).filename() == name; });
    if (!read && name.ends_with(".safetensors")) strays.push_back(name);
  }
  std::ranges::sort(strays);
  if (!strays.empty())
    warnings_.push_back("ignored: files that are no part of the model: " + name_list(strays));
}

void ModelFolder::read(const ParamSpec& spec, int64_t first, std::span<float> out, NonFinite policy) const {
  const LocatedTensor* stored = find(spec.name);
  ASSERT(stored != nullptr && first >= 0 && first + static_cast<int64_t>(out.size()) <= spec.numel,
         "elements {}+{} of \"{}\"", first, out.size(), spec.name);
  read_in_block_order(spec, sizeof(float), first, std::as_writable_bytes(out),
                      [&](uint64_t begin, std::span<std::byte> bytes) {
                        stored->file->read(
                            *stored->entry, begin,
                            {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
                      });
  if (policy == NonFinite::accept) return;
  const auto bad = std::ranges::find_if(out, [](float x) { return non_finite(x); });
  CHECK(bad == out.end(), Status::failed,
        fmt::format("the weight holds {} at element {}", *bad, first + (bad - out.begin())), stored->place(),
        "take an earlier checkpoint of the model");
}

FileSums save_weights(const std::string& folder, const ParamTable& table, DType dtype, const StoredForm& form,
                      const FetchParameter& fetch, uint64_t shard_limit) {
  SafetensorsHeader header{{}, form.metadata};
  std::map<std::string, const ParamSpec*> sources;
  const auto store = [&](const std::string& name, const ParamSpec& spec) {
    header.entries.push_back({name, std::string(safetensors_name(dtype)), file_shape(spec)});
    sources[name] = &spec;
  };
  for (const ParamSpec& spec : table.params()) store(form.stored_name(spec.name), spec);
  if (form.head_beside_tied_embedding) {
    ASSERT(table.find(kHeadName) == nullptr, "a tied model has no head of its own");
    store(kHeadName, table.params().front());
  }
  StoredOrder order(fetch, size_of(dtype));
  const auto fetch_bytes = [&](const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) {
    order.read(*sources.at(entry.name), offset, out);
  };
  return write_safetensors_set(folder, "model", header, shard_limit, fetch_bytes);
}

FileSums copy_files(const std::string& from, const std::string& to, std::span<const std::string_view> names) {
  FileSums sums;
  for (const std::string_view name : names) {
    const std::string source = fmt::format("{}/{}", from, name);
    if (std::error_code ignored; fs::exists(source, ignored))
      sums[std::string(name)] = copy_atomically(File(source), fmt::format("{}/{}", to, name));
  }
  return sums;
}

}  // namespace tandem
