#pragma once
// What a decoder is made of, as a description. Read from a Hugging Face config.json by core/io/hf_config.
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// How a family names its parameters in files, and how it stores them.
enum class Naming : uint8_t {
  llama,
  gpt2,  ///< q, k and v in one matrix; linear weights are [in, out] in files
};

enum class RopeScaling : uint8_t { none, linear, llama3, yarn };

/// Rotary position embedding: inv_freq[j] = theta^(-2j/D), then scaled.
struct Rope {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                                 ///< linear, llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  int64_t original_max_position = 8192;              ///< llama3, yarn
  double beta_fast = 32, beta_slow = 1;              ///< yarn: turns over the original length
  double attention_factor = 1;                       ///< of cosines and sines
  bool operator==(const Rope&) const = default;
};

/// A pre-norm decoder with grouped-query attention. The defaults are Llama's: RMSNorm, rotary, SwiGLU, no
/// biases.
struct Arch {
  std::string model_type = "llama";
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-6;
  bool tied = false;
  double initializer_range = 0.02;
  int64_t padding_row = -1;  ///< of the embedding: its initial values are zero; -1: none
  Rope rope;
  std::vector<int64_t> windows;  ///< of each layer, 0 = full attention; empty = full everywhere
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  Naming naming = Naming::llama;
  bool layer_norm = false;         ///< LayerNorm with weight and bias instead of RMSNorm
  bool learned_positions = false;  ///< a table of max_positions instead of the rotation
  bool gelu = false;               ///< the MLP is down(gelu_new(up(x))), without a gate
  bool qk_norm = false;            ///< RMS norm of every query and key head, before the rotation
  double dropout = 0;              ///< the largest rate that the config names; never applied

  [[nodiscard]] int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows.at(static_cast<size_t>(layer));
  }
};

/// Inverse frequencies after scaling, [head_dim / 2], in double.
std::vector<double> rope_inverse_frequencies(const Rope& rope, int64_t head_dim);

}  // namespace tandem
