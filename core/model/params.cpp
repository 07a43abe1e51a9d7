#include "core/model/params.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/glob.h"

namespace tandem {

namespace {

constexpr int64_t kAlign = 64;  // elements: the boundary of Adam's ranges and of compact formats' groups

int64_t aligned(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

std::vector<int64_t> ParamSpec::stored_shape() const {
  return transposed ? std::vector<int64_t>(shape.rbegin(), shape.rend()) : shape;
}

ParamTable::ParamTable(const Arch& a, const std::vector<std::string>& no_decay) {
  a.naming == Naming::gpt2 ? add_gpt2(a) : add_llama(a);
  for (const std::string& glob : no_decay) {
    bool matched = false;
    for (ParamSpec& spec : params_)
      if (glob_matches(glob, spec.name)) {
        spec.decay = false;
        matched = true;
      }
    CHECK(matched, Status::usage, fmt::format("no parameter is named \"{}\"", printable(glob)),
          "optimizer.params.no_decay", "names look like " + params_.front().name + "; * and ? are wildcards");
  }
}

void ParamTable::add_llama(const Arch& a) {
  add_block("embedding", 1, a.tied ? 1 : 0, a.tied ? 2 : 1);
  add(Role::embedding, "model.embed_tokens.weight", {a.vocab, a.hidden}, Init::normal).zero_row =
      a.padding_row;
  for (int64_t i = 0; i < a.layers; ++i) {
    add_block(fmt::format("layer {}", i), 1, 1, 1);
    add_layer(a, fmt::format("model.layers.{}.", i));
  }
  add_block("head", 0, 1, 1);
  add(Role::final_norm, "model.norm.weight", {a.hidden}, Init::ones);
  if (!a.tied) add(Role::head, "lm_head.weight", {a.vocab, a.hidden}, Init::normal);
}

void ParamTable::add_gpt2(const Arch& a) {
  add_block("embedding", 1, a.tied ? 1 : 0, a.tied ? 2 : 1);
  add(Role::embedding, "transformer.wte.weight", {a.vocab, a.hidden}, Init::normal);
  add(Role::positions, "transformer.wpe.weight", {a.max_positions, a.hidden}, Init::normal);
  for (int64_t i = 0; i < a.layers; ++i) {
    add_block(fmt::format("layer {}", i), 1, 1, 1);
    add_gpt2_layer(a, fmt::format("transformer.h.{}.", i));
  }
  add_block("head", 0, 1, 1);
  add_layer_norm(Role::final_norm, Role::final_norm_bias, "transformer.ln_f", a.hidden);
  if (!a.tied) add(Role::head, "lm_head.weight", {a.vocab, a.hidden}, Init::normal);
}

void ParamTable::add_gpt2_layer(const Arch& a, const std::string& prefix) {
  add_layer_norm(Role::norm1, Role::norm1_bias, prefix + "ln_1", a.hidden);
  add_conv1d(Role::qkv, Role::qkv_bias, prefix + "attn.c_attn", 3 * a.hidden, a.hidden, Init::normal);
  add_conv1d(Role::o, Role::o_bias, prefix + "attn.c_proj", a.hidden, a.hidden, Init::residual);
  add_layer_norm(Role::norm2, Role::norm2_bias, prefix + "ln_2", a.hidden);
  add_conv1d(Role::up, Role::up_bias, prefix + "mlp.c_fc", a.intermediate, a.hidden, Init::normal);
  add_conv1d(Role::down, Role::down_bias, prefix + "mlp.c_proj", a.hidden, a.intermediate, Init::residual);
}

void ParamTable::add_layer(const Arch& a, const std::string& prefix) {
  const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  add(Role::norm1, prefix + "input_layernorm.weight", {a.hidden}, Init::ones);
  add_linear(Role::q, Role::q_bias, attention + "q_proj", q, a.hidden, a.qkv_bias);
  add_linear(Role::k, Role::k_bias, attention + "k_proj", kv, a.hidden, a.qkv_bias);
  add_linear(Role::v, Role::v_bias, attention + "v_proj", kv, a.hidden, a.qkv_bias);
  if (a.qk_norm) {
    add(Role::q_norm, attention + "q_norm.weight", {a.head_dim}, Init::ones);
    add(Role::k_norm, attention + "k_norm.weight", {a.head_dim}, Init::ones);
  }
  add_linear(Role::o, Role::o_bias, attention + "o_proj", a.hidden, q, a.o_bias);
  add(Role::norm2, prefix + "post_attention_layernorm.weight", {a.hidden}, Init::ones);
  add_linear(Role::gate, Role::gate_bias, mlp + "gate_proj", a.intermediate, a.hidden, a.mlp_bias);
  add_linear(Role::up, Role::up_bias, mlp + "up_proj", a.intermediate, a.hidden, a.mlp_bias);
  add_linear(Role::down, Role::down_bias, mlp + "down_proj", a.hidden, a.intermediate, a.mlp_bias);
}

void ParamTable::add_block(std::string name, int forward_uses, int backward_uses, int grad_uses) {
  blocks_.push_back(
      {std::move(name), 0, static_cast<int>(params_.size()), 0, forward_uses, backward_uses, grad_uses});
}

void ParamTable::add_linear(Role weight, Role bias, const std::string& name, int64_t out, int64_t in,
                            bool biased) {
  add(weight, name + ".weight", {out, in}, Init::normal);
  if (biased) add(bias, name + ".bias", {out}, Init::zeros);
}

void ParamTable::add_layer_norm(Role weight, Role bias, const std::string& name, int64_t width) {
  add(weight, name + ".weight", {width}, Init::ones);
  add(bias, name + ".bias", {width}, Init::zeros);
}

void ParamTable::add_conv1d(Role weight, Role bias, const std::string& name, int64_t out, int64_t in,
                            Init init) {
  add(weight, name + ".weight", {out, in}, init).transposed = true;
  add(bias, name + ".bias", {out}, Init::zeros);
}

ParamSpec& ParamTable::add(Role role, std::string name, std::vector<int64_t> shape, Init init) {
  BlockSpec& block = blocks_.back();
  ParamSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.numel = 1;
  for (const int64_t dim : shape) spec.numel *= dim;
  spec.decay = shape.size() >= 2;
  spec.shape = std::move(shape);
  spec.block = block_count() - 1;
  spec.offset = block.numel;
  spec.init = init;
  block.numel += aligned(spec.numel);
  ++block.param_count;
  parameter_count_ += spec.numel;
  padded_count_ += aligned(spec.numel);
  return params_.emplace_back(std::move(spec));
}

int64_t ParamTable::largest_block() const {
  int64_t largest = 0;
  for (const BlockSpec& block : blocks_) largest = std::max(largest, block.numel);
  return largest;
}

std::span<const ParamSpec> ParamTable::of_block(BlockId id) const {
  const BlockSpec& spec = block(id);
  return std::span(params_).subspan(static_cast<size_t>(spec.first_param),
                                    static_cast<size_t>(spec.param_count));
}

const ParamSpec* ParamTable::find(std::string_view name) const {
  const auto found =
      std::find_if(params_.begin(), params_.end(), [&](const ParamSpec& spec) { return spec.name == name; });
  return found == params_.end() ? nullptr : &*found;
}

std::vector<DecayRange> ParamTable::decay_ranges(BlockId id) const {
  std::vector<DecayRange> ranges;
  for (const ParamSpec& spec : of_block(id)) {
    if (ranges.empty() || ranges.back().decay != spec.decay) ranges.push_back({spec.offset, 0, spec.decay});
    ranges.back().count = spec.offset + aligned(spec.numel) - ranges.back().begin;
  }
  return ranges;
}

Tensor ParamTable::view(const ParamSpec& spec, Tensor block) {
  return {block.flat(spec.offset, spec.numel).raw(), block.dtype(), std::span<const int64_t>(spec.shape)};
}

Tensor ParamTable::part(BlockId id, Role role, Tensor flat) const {
  const auto specs = of_block(id);
  const auto found = std::ranges::find(specs, role, &ParamSpec::role);
  return found == specs.end() ? Tensor{} : view(*found, flat);
}

}  // namespace tandem
