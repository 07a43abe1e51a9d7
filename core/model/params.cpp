#include "core/model/params.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/glob.h"

namespace tandem {

namespace {

constexpr int64_t kAlign = 64;  // elements: the boundary of Adam's ranges and of compact formats' groups

int64_t aligned(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

/// change(spec) for every parameter that a glob names. key: where the globs come from.
template <class Change>
void for_matches(std::vector<ParamSpec>& params, const std::vector<std::string>& globs, const char* key,
                 Change change) {
  for (const std::string& glob : globs) {
    bool matched = false;
    for (ParamSpec& spec : params)
      if (glob_matches(glob, spec.name)) {
        change(spec);
        matched = true;
      }
    CHECK(matched, Status::usage, fmt::format("no parameter is named \"{}\"", printable(glob)), key,
          "names look like " + params.front().name + "; * and ? are wildcards");
  }
}

}  // namespace

std::vector<int64_t> ParamSpec::stored_shape() const {
  return transposed ? std::vector<int64_t>(shape.rbegin(), shape.rend()) : shape;
}

ParamTable::ParamTable(const Arch& a, const std::vector<std::string>& no_decay,
                       const std::vector<std::string>& freeze_globs) {
  a.naming == Naming::gpt2 ? add_gpt2(a) : add_llama(a);
  for_matches(params_, no_decay, "optimizer.params.no_decay", [](ParamSpec& spec) { spec.decay = false; });
  freeze(freeze_globs);
  lay_out();
  count_uses(a.tied);
}

void ParamTable::freeze(const std::vector<std::string>& globs) {
  for_matches(params_, globs, "model.freeze", [](ParamSpec& spec) { spec.frozen = true; });
  CHECK(!std::ranges::all_of(params_, &ParamSpec::frozen), Status::usage,
        "every parameter is frozen: nothing is left to train", "model.freeze", "globs that leave some out");
}

/// Offsets and sizes: in every block the trained parameters first, in the order of their adding.
void ParamTable::lay_out() {
  for (BlockSpec& block : blocks_) {
    const auto specs = std::span(params_).subspan(static_cast<size_t>(block.first_param),
                                                  static_cast<size_t>(block.param_count));
    for (const bool frozen : {false, true})
      for (ParamSpec& spec : specs) {
        if (spec.frozen != frozen) continue;
        spec.offset = block.numel;
        block.numel += aligned(spec.numel);
        if (!frozen) block.trained = block.numel, trained_count_ += spec.numel;
        parameter_count_ += spec.numel;
      }
    padded_count_ += block.numel;
  }
}

/// Leases and buckets of a step. Backward ends at the first block that is trained; a tied embedding is the
/// head too, whose part of the gradient has a bucket of its own.
void ParamTable::count_uses(bool tied) {
  const BlockId first = first_trained(), head = block_count() - 1;
  for (BlockId id = 0; id < block_count(); ++id) {
    BlockSpec& block = blocks_[static_cast<size_t>(id)];
    block.forward_uses = id < head ? 1 : 0;
    block.backward_uses = id > 0 && id >= first ? 1 : 0;
    block.grad_uses = block.trained > 0 ? 1 : 0;
  }
  if (!tied) return;
  blocks_.front().backward_uses = 1;
  if (!params_.front().frozen) blocks_.front().grad_uses = 2;
}

void ParamTable::add_llama(const Arch& a) {
  add_block("embedding");
  add(Role::embedding, "model.embed_tokens.weight", {a.vocab, a.hidden}, Init::normal).zero_row =
      a.padding_row;
  for (int64_t i = 0; i < a.layers; ++i) {
    add_block(fmt::format("layer {}", i));
    add_layer(a, fmt::format("model.layers.{}.", i));
  }
  add_block("head");
  add(Role::final_norm, "model.norm.weight", {a.hidden}, Init::ones);
  if (!a.tied) add(Role::head, "lm_head.weight", {a.vocab, a.hidden}, Init::normal);
}

void ParamTable::add_gpt2(const Arch& a) {
  add_block("embedding");
  add(Role::embedding, "transformer.wte.weight", {a.vocab, a.hidden}, Init::normal);
  add(Role::positions, "transformer.wpe.weight", {a.max_positions, a.hidden}, Init::normal);
  for (int64_t i = 0; i < a.layers; ++i) {
    add_block(fmt::format("layer {}", i));
    add_gpt2_layer(a, fmt::format("transformer.h.{}.", i));
  }
  add_block("head");
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

void ParamTable::add_block(std::string name) {
  BlockSpec& block = blocks_.emplace_back();
  block.name = std::move(name);
  block.first_param = static_cast<int>(params_.size());
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
  ParamSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.numel = 1;
  for (const int64_t dim : shape) spec.numel *= dim;
  spec.decay = shape.size() >= 2;
  spec.shape = std::move(shape);
  spec.block = block_count() - 1;
  spec.init = init;
  ++blocks_.back().param_count;
  return params_.emplace_back(std::move(spec));
}

BlockId ParamTable::first_trained() const {
  const auto first = std::ranges::find_if(blocks_, [](const BlockSpec& block) { return block.trained > 0; });
  return static_cast<BlockId>(first - blocks_.begin());
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
    if (spec.frozen) continue;
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
  if (found == specs.end()) return {};
  const bool gradients = flat.empty() || flat.numel() < block(id).numel;
  return gradients && found->frozen ? Tensor{} : view(*found, flat);
}

}  // namespace tandem
