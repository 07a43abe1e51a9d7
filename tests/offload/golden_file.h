#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/arch.h"

namespace tandem::golden {

/// Results that another program computed, under tests/golden/: words and numbers about the model and named
/// arrays. The layout stands in tests/golden/golden_file.py, the arrays' meaning in
/// tests/golden/make_llama.py.
class GoldenFile {
 public:
  /// Throws std::runtime_error, with the path, for a file that is not a whole golden.
  explicit GoldenFile(const std::string& path);

  /// Throw std::runtime_error, naming the key or array, where there is none.
  [[nodiscard]] const std::string& word(const std::string& key) const;
  [[nodiscard]] double number(const std::string& key) const;
  [[nodiscard]] int64_t integer(const std::string& key) const;
  /// Every type as double: f32 and i32 are exact in it.
  [[nodiscard]] const std::vector<double>& array(const std::string& name) const;
  [[nodiscard]] bool has_array(const std::string& name) const { return arrays_.contains(name); }
  /// The single element of an array of one.
  [[nodiscard]] double scalar(const std::string& name) const;
  /// NAMEs of the arrays "grad.NAME.norm": the parameters that have a gradient, sorted.
  [[nodiscard]] std::vector<std::string> parameters() const;

  /// The model that the golden is of.
  [[nodiscard]] Arch arch() const;

 private:
  std::map<std::string, std::string> words_;
  std::map<std::string, std::vector<double>> arrays_;
};

/// The goldens of the Llama family: "untied", "tied", "linear", "llama3", "head_dim".
const std::vector<std::string>& llama_variants();
GoldenFile load_llama(const std::string& variant);
/// The same model's config.json as transformers writes it.
std::string llama_config_path(const std::string& variant);

/// The goldens of tests/golden/make_families.py: "mistral_window" and so on. What the model is stands in its
/// config.json alone.
const std::vector<std::string>& family_variants();
GoldenFile load_family(const std::string& variant);
Arch family_arch(const std::string& variant);

}  // namespace tandem::golden
