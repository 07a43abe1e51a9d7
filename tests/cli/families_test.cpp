// `tandem train` of a small model of every family: it runs, and its checkpoint holds the tensors that the
// family's files have.
#include <gtest/gtest.h>

#include <map>
#include <ostream>

#include "core/io/safetensors_set.h"
#include "tests/cli/program.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

using Shapes = std::map<std::string, std::vector<uint64_t>>;

/// Vocab 256, hidden 32, 4 heads over 2, intermediate 48, one layer, for this head size.
Shapes llama_names(uint64_t head_dim) {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {256, 32}},
          {layer + "input_layernorm.weight", {32}},
          {layer + "self_attn.q_proj.weight", {4 * head_dim, 32}},
          {layer + "self_attn.k_proj.weight", {2 * head_dim, 32}},
          {layer + "self_attn.v_proj.weight", {2 * head_dim, 32}},
          {layer + "self_attn.o_proj.weight", {32, 4 * head_dim}},
          {layer + "post_attention_layernorm.weight", {32}},
          {layer + "mlp.gate_proj.weight", {48, 32}},
          {layer + "mlp.up_proj.weight", {48, 32}},
          {layer + "mlp.down_proj.weight", {32, 48}},
          {"model.norm.weight", {32}}};
}

/// The same sizes for GPT-2, whose heads are 4; its linear weights are [in, out].
Shapes gpt2_names() {
  const std::string layer = "transformer.h.0.";
  return {{"transformer.wte.weight", {256, 32}},
          {"transformer.wpe.weight", {16, 32}},
          {layer + "ln_1.weight", {32}},
          {layer + "ln_1.bias", {32}},
          {layer + "attn.c_attn.weight", {32, 96}},
          {layer + "attn.c_attn.bias", {96}},
          {layer + "attn.c_proj.weight", {32, 32}},
          {layer + "attn.c_proj.bias", {32}},
          {layer + "ln_2.weight", {32}},
          {layer + "ln_2.bias", {32}},
          {layer + "mlp.c_fc.weight", {32, 48}},
          {layer + "mlp.c_fc.bias", {48}},
          {layer + "mlp.c_proj.weight", {48, 32}},
          {layer + "mlp.c_proj.bias", {32}},
          {"transformer.ln_f.weight", {32}},
          {"transformer.ln_f.bias", {32}}};
}

constexpr const char* kLlamaKeys =
    R"("vocab_size":256,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,"num_attention_heads":4,
       "num_key_value_heads":2)";

Shapes with(Shapes names, const Shapes& also) {
  names.insert(also.begin(), also.end());
  return names;
}

struct Family {
  std::string name, keys;  ///< model_type; keys of model.config
  Shapes names;
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

std::vector<Family> families() {
  const std::string a = "model.layers.0.self_attn.", m = "model.layers.0.mlp.";
  return {
      {"gpt2", R"("n_embd":32,"n_inner":48,"n_layer":1,"n_head":4,"n_positions":16)", gpt2_names()},
      {"llama", R"("attention_bias":true,"mlp_bias":true)",
       with(llama_names(8), {{"lm_head.weight", {256, 32}},
                             {a + "q_proj.bias", {32}},
                             {a + "k_proj.bias", {16}},
                             {a + "v_proj.bias", {16}},
                             {a + "o_proj.bias", {32}},
                             {m + "gate_proj.bias", {48}},
                             {m + "up_proj.bias", {48}},
                             {m + "down_proj.bias", {32}}})},
      {"mistral", R"("head_dim":16,"sliding_window":5)",
       with(llama_names(16), {{"lm_head.weight", {256, 32}}})},
      {"qwen2",
       R"("tie_word_embeddings":true,"use_sliding_window":true,"sliding_window":5,"max_window_layers":0)",
       with(llama_names(8),
            {{a + "q_proj.bias", {32}}, {a + "k_proj.bias", {16}}, {a + "v_proj.bias", {16}}})},
      {"qwen3", R"("tie_word_embeddings":true)",
       with(llama_names(128), {{a + "q_norm.weight", {128}}, {a + "k_norm.weight", {128}}})},
  };
}

class CheckpointOfFamily : public testing::TestWithParam<Family> {};

TEST_P(CheckpointOfFamily, HoldsItsNamesAndShapes) {
  const Family& family = GetParam();
  const TemporaryFolder folder;
  folder.write("text", std::string(2000, 'a'));
  const std::string config =
      folder.write("train.json", fmt::format(R"({{"output_dir":"{}","train_micro_batch_size_per_gpu":2,
        "model":{{"config":{{"model_type":"{}",{},{}}}}},
        "data":{{"train":"text","format":"bytes","sequence_length":9}},"train":{{"steps":3}},
        "optimizer":{{"type":"AdamW","params":{{"lr":1e-3}}}},"device":{{"kind":"host","threads":1}}}})",
                                             folder.path("run"), family.name, kLlamaKeys, family.keys));
  const Ran ran = run_tandem({"train", config});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("3 updates, 0 skipped"), std::string::npos) << ran.out;
  const SafetensorsSet saved(folder.path("run/checkpoints/step-00000003"));
  Shapes shapes;
  for (const auto& [name, tensor] : saved.tensors()) shapes[name] = tensor.entry->shape;
  EXPECT_EQ(shapes, family.names);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, CheckpointOfFamily, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
