#pragma once
// The parameters of a model: the only list of them. Names, shapes, blocks, offsets, decay, initial values.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"
#include "core/model/arch.h"

namespace tandem {

using BlockId = int;

/// Why a block's weights are read. Evaluation's leases don't count among a step's uses.
enum class Pass : uint8_t { forward, backward, evaluate };

/// normal: mean 0, std initializer_range; residual: that std by the root of the number of matrices that add
/// to the residual stream, 2 a layer.
enum class Init : uint8_t { normal, residual, ones, zeros };

/// What a parameter does in its block, whatever its family calls it.
enum class Role : uint8_t {
  embedding,
  positions,
  norm1,
  norm1_bias,
  qkv,  ///< rows of q, then of k, then of v, in equal parts
  qkv_bias,
  q,
  q_bias,
  k,
  k_bias,
  v,
  v_bias,
  q_norm,
  k_norm,
  o,
  o_bias,
  norm2,
  norm2_bias,
  gate,
  gate_bias,
  up,
  up_bias,
  down,
  down_bias,
  final_norm,
  final_norm_bias,
  head,
};

/// One parameter: a tensor under its Hugging Face name, inside the flat memory of its block.
struct ParamSpec {
  std::string name;            ///< "model.layers.3.mlp.up_proj.weight", as stored in model files
  std::vector<int64_t> shape;  ///< in the block; linear weights are [out, in]
  bool transposed = false;     ///< model files hold it as [in, out]
  Role role = Role::embedding;
  BlockId block = 0;
  int64_t offset = 0;  ///< elements from the block's start; a multiple of 64; frozen ones come last
  int64_t numel = 0;
  bool decay = false;   ///< weight decay applies: rank >= 2 and not named in optimizer.params.no_decay
  bool frozen = false;  ///< not trained: no gradient, no states
  Init init = Init::normal;
  int64_t zero_row = -1;  ///< a row that starts at zero: the padding token's; -1: none
  /// The shape in model files.
  [[nodiscard]] std::vector<int64_t> stored_shape() const;
};

/// The unit of lease, gradient bucket, optimizer step, upload and checkpoint entry.
struct BlockSpec {
  std::string name;     ///< "embedding", "layer 3", "head"
  int64_t numel = 0;    ///< with the zero padding that brings every parameter to a multiple of 64 elements
  int64_t trained = 0;  ///< the first so many elements are trained, the rest is frozen
  int first_param = 0, param_count = 0;
  int forward_uses = 0;   ///< leases of a training step per micro-batch group: forward
  int backward_uses = 0;  ///< and backward (recompute and backward of one block are one lease)
  int grad_uses = 0;      ///< gradient buckets that are summed at close: 2 for a tied embedding, 0 if frozen
};

/// A range of one block with one decay setting, in whole parameters (adjacent ones merged).
struct DecayRange {
  int64_t begin = 0, count = 0;
  bool decay = false;
};

class ParamTable {
 public:
  /// Blocks: 0 the embedding; 1 .. L the layers; L+1 the final norm and, when untied, the head.
  /// no_decay, freeze: globs ('*', '?') of further names without weight decay, and of names that are not
  /// trained. A glob that matches nothing is an Error(usage), as is freezing everything.
  explicit ParamTable(const Arch& arch, const std::vector<std::string>& no_decay = {},
                      const std::vector<std::string>& freeze = {});

  [[nodiscard]] const std::vector<ParamSpec>& params() const { return params_; }
  [[nodiscard]] const std::vector<BlockSpec>& blocks() const { return blocks_; }
  [[nodiscard]] const BlockSpec& block(BlockId id) const { return blocks_.at(static_cast<size_t>(id)); }
  [[nodiscard]] int block_count() const { return static_cast<int>(blocks_.size()); }
  /// Parameters without padding.
  [[nodiscard]] int64_t parameter_count() const { return parameter_count_; }
  /// Elements with padding, over all blocks.
  [[nodiscard]] int64_t padded_count() const { return padded_count_; }
  /// Parameters without padding that are not frozen.
  [[nodiscard]] int64_t trained_count() const { return trained_count_; }
  /// The first block with a trained parameter: backward ends there.
  [[nodiscard]] BlockId first_trained() const;
  [[nodiscard]] int64_t largest_block() const;
  /// The parameters of one block; the trained ones in offset order.
  [[nodiscard]] std::span<const ParamSpec> of_block(BlockId id) const;
  /// nullptr if there is none of that name.
  [[nodiscard]] const ParamSpec* find(std::string_view name) const;
  /// Which of params() it is, whatever is frozen: its number in random streams.
  [[nodiscard]] uint32_t index(const ParamSpec& spec) const {
    return static_cast<uint32_t>(&spec - params_.data());
  }
  /// Together they cover the block's trained elements.
  [[nodiscard]] std::vector<DecayRange> decay_ranges(BlockId id) const;
  /// The parameter as a tensor in its block's flat memory.
  [[nodiscard]] static Tensor view(const ParamSpec& spec, Tensor block);
  /// The block's parameter of that role in its flat memory; empty if the block has none. A gradient's flat
  /// memory holds the trained elements only, or none at all: there frozen parameters are empty.
  [[nodiscard]] Tensor part(BlockId id, Role role, Tensor flat) const;

 private:
  void add_block(std::string name);
  ParamSpec& add(Role role, std::string name, std::vector<int64_t> shape, Init init);
  void add_layer_norm(Role weight, Role bias, const std::string& name, int64_t width);
  void add_conv1d(Role weight, Role bias, const std::string& name, int64_t out, int64_t in, Init init);
  void add_gpt2(const Arch& arch);
  void add_gpt2_layer(const Arch& arch, const std::string& prefix);
  void add_llama(const Arch& arch);
  void add_linear(Role weight, Role bias, const std::string& name, int64_t out, int64_t in, bool biased);
  void add_layer(const Arch& arch, const std::string& prefix);
  void freeze(const std::vector<std::string>& globs);
  void lay_out();
  void count_uses(bool tied);
  std::vector<ParamSpec> params_;
  std::vector<BlockSpec> blocks_;
  int64_t parameter_count_ = 0, padded_count_ = 0, trained_count_ = 0;
};

}  // namespace tandem
