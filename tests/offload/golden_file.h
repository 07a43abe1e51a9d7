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

 private:
  std::map<std::string, std::string> words_;
  std::map<std::string, std::vector<double>> arrays_;
};

/// The names of all goldens, as their files have them: "llama_untied", "qwen3_window" and so on.
const std::vector<std::string>& variants();
GoldenFile load(const std::string& variant);
/// The golden's model, from the config.json that transformers wrote.
Arch arch_of(const std::string& variant);

}  // namespace tandem::golden
