#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors_set.h"
#include "core/io/stored_order.h"
#include "core/model/arch.h"
#include "core/model/params.h"

namespace tandem {

/// What to do about infinities and NaN in weights.
enum class NonFinite : uint8_t { accept, refuse };

/// How a model's files were written, as far as a save should repeat it.
struct StoredForm {
  bool head_beside_tied_embedding = false;  ///< lm_head.weight is stored although it is the embedding
  std::map<std::string, std::string> metadata = {};
  std::string dropped_prefix = {};  ///< what the files' names lack of the parameters' ("transformer.")
  /// The name in the files.
  [[nodiscard]] std::string stored_name(const std::string& parameter) const {
    return parameter.starts_with(dropped_prefix) ? parameter.substr(dropped_prefix.size()) : parameter;
  }
};

/// The head's name in the files.
inline constexpr const char* kHeadName = "lm_head.weight";

/// What the key model.mmap and the option --mmap mean.
constexpr FileAccess weights_access(bool mmap) { return mmap ? FileAccess::mapped : FileAccess::sequential; }

/// The architecture that a folder's config.json describes. Error(failed).
Arch read_arch(const std::string& folder);

/// Everything that keeps stored tensors from being the architecture's parameters, in its order: those that
/// are missing, of another shape, or of a dtype that can't be trained. Every Error is failed.
std::vector<Error> parameter_faults(const Arch& arch, const SafetensorsSet& weights,
                                    const std::string& folder);

/// A Hugging Face model folder, or a Tandem checkpoint's, which has the same layout. A folder that could be
/// opened is complete: every parameter of its architecture is there exactly once, in its shape, in a float
/// dtype; a tied head that is stored beside its embedding has the same values. Opening reads headers only
/// (and a stored tied head). Error(usage) when the folder does not exist, else Error(failed).
class ModelFolder {
 public:
  explicit ModelFolder(std::string path, FileAccess access = FileAccess::sequential);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const Arch& arch() const { return arch_; }
  /// config.json, every byte as it came.
  [[nodiscard]] const std::string& config_text() const { return config_text_; }
  [[nodiscard]] const StoredForm& stored_form() const { return form_; }
  [[nodiscard]] const SafetensorsSet& weights() const { return weights_; }
  /// What was left aside, one line each: stray files, tensors that belong to no parameter, an ignored index.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// Fills out with the parameter's elements from `first` on, as fp32, in large sequential reads; a
  /// transposed parameter in the block's order, by a read of the whole tensor. refuse:
  /// Error(failed) with file and tensor at the first infinity or NaN. Serves several threads at once.
  void read(const ParamSpec& spec, int64_t first, std::span<float> out, NonFinite policy) const;

 private:
  void note_parameters(const ParamTable& table);
  void check_tied_head(const ParamTable& table);
  void note_strays();
  [[nodiscard]] const LocatedTensor* find(const std::string& parameter) const {
    return weights_.find(form_.stored_name(parameter));
  }
  std::string path_;
  std::string config_text_;
  Arch arch_;
  SafetensorsSet weights_;
  StoredForm form_;
  std::vector<std::string> warnings_;
};

inline constexpr uint64_t kShardLimit = 5'000'000'000;

/// Writes the weights, fetched in the dtype of the save, under their Hugging Face names as model.safetensors
/// or shards (see write_safetensors_set); the tied head too, if it came with one.
FileSums save_weights(const std::string& folder, const ParamTable& table, DType dtype, const StoredForm& form,
                      const FetchParameter& fetch, uint64_t shard_limit = kShardLimit);

/// Files beside the weights that go into checkpoints byte for byte.
inline constexpr std::string_view kGenerationConfig[] = {"generation_config.json"};
inline constexpr std::string_view kTokenizerFiles[] = {"tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "vocab.json",
                                                       "merges.txt",
                                                       "vocab.txt",
                                                       "tokenizer.model",
                                                       "chat_template.jinja",
                                                       "chat_template.json"};

/// Copies those of the named files that `from` holds.
FileSums copy_files(const std::string& from, const std::string& to, std::span<const std::string_view> names);

}  // namespace tandem
