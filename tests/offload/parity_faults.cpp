#include "tests/offload/parity_faults.h"

#include <algorithm>
#include <cmath>

#include "tests/offload/golden_file.h"
#include "tests/offload/parity_helpers.h"

namespace tandem::golden {

namespace {

void no_scaling(Arch& arch) { arch.rope.scaling = RopeScaling::none; }
void theta_off(Arch& arch) { arch.rope.theta *= 1.01; }
void theta_doubled(Arch& arch) { arch.rope.theta *= 2; }
void no_biases(Arch& arch) { arch.qkv_bias = arch.o_bias = arch.mlp_bias = false; }
void no_qk_norm(Arch& arch) { arch.qk_norm = false; }
void not_tied(Arch& arch) { arch.tied = false; }
void no_positions(Arch& arch) { arch.learned_positions = false; }
void eps_off(Arch& arch) { arch.norm_eps += 1e-3; }
void no_attention_factor(Arch& arch) { arch.rope.attention_factor = 1; }
void wider_window(Arch& arch) {
  for (int64_t& window : arch.windows) window += window > 0 ? 1 : 0;
}
void no_window(Arch& arch) { arch.windows.clear(); }
void window_in_the_other_layer(Arch& arch) { std::swap(arch.windows.at(0), arch.windows.at(1)); }

/// Every row of the table of positions is the one of the next position.
void shifted_positions(const ParamSpec& spec, std::span<float> out) {
  fill_stored(spec, out);
  if (spec.role == Role::positions) std::ranges::rotate(out, out.begin() + spec.shape.at(1));
}

/// Attention's output projection is square: without the transpose its shape is still right.
void square_not_transposed(const ParamSpec& spec, std::span<float> out) {
  fill_stored(spec, out);
  if (spec.role == Role::o) std::ranges::copy(turned(spec, out, true), out.begin());
}

/// As if scores were scaled by 1/sqrt(hidden / heads), 16, where heads have 24 elements.
void scaled_by_hidden(const ParamSpec& spec, std::span<float> out) {
  fill_stored(spec, out);
  if (spec.role != Role::q) return;
  for (float& x : out) x *= std::sqrt(24.0f / 16.0f);
}

}  // namespace

Arch Fault::planted_arch() const {
  Arch planted = arch_of(variant);
  if (arch) arch(planted);
  return planted;
}

Fill Fault::planted_weights() const { return weights ? weights : fill_stored; }

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all{
      {"gpt2", "no_positions", no_positions},
      {"gpt2", "positions_shifted", {}, shifted_positions},
      {"gpt2", "square_not_transposed", {}, square_not_transposed},
      {"gpt2", "not_tied", not_tied},
      {"gpt2_untied", "eps_off", eps_off, {}, true},
      {"gpt2_untied", "positions_shifted", {}, shifted_positions},
      {"llama_biases", "no_biases", no_biases},
      {"llama_head_dim", "scaled_by_hidden", {}, scaled_by_hidden},
      {"llama_linear", "no_scaling", no_scaling},
      {"llama_llama3", "no_scaling", no_scaling},
      {"llama_tied", "not_tied", not_tied},
      {"llama_untied", "theta_off", theta_off, {}, true},
      {"llama_untied", "theta_doubled", theta_doubled},
      {"llama_yarn", "no_attention_factor", no_attention_factor},
      {"llama_yarn", "no_scaling", no_scaling},
      {"mistral_window", "wider_window", wider_window},
      {"mistral_window", "no_window", no_window},
      {"qwen2_biases", "no_biases", no_biases},
      {"qwen2_biases", "not_tied", not_tied},
      {"qwen2_window", "wider_window", wider_window},
      {"qwen2_window", "window_in_the_other_layer", window_in_the_other_layer},
      {"qwen3_tied", "no_qk_norm", no_qk_norm},
      {"qwen3_tied", "not_tied", not_tied},
      {"qwen3_window", "wider_window", wider_window},
      {"qwen3_window", "window_in_the_other_layer", window_in_the_other_layer},
      {"qwen3_window", "no_biases", no_biases},
  };
  return all;
}

void PrintTo(const Fault& fault, std::ostream* out) { *out << name_of(fault); }

std::string name_of(const Fault& fault) { return fault.variant + "_" + fault.name; }

}  // namespace tandem::golden
