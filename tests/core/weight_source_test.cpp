#include "core/model/weight_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/io/hf_config.h"

namespace tandem {
namespace {

Arch arch_of(const std::string& text) {
  const json::Document document = parse_hf_json(text, "config.json");
  return parse_hf_config(json::Node(document));
}

std::vector<float> values(const ParamTable& table, const std::string& name, double range) {
  const ParamSpec& spec = *table.find(name);
  std::vector<float> out(static_cast<size_t>(spec.numel));
  SeededWeights(table, 7, range).read(spec, 0, out);
  return out;
}

/// n values have the standard deviation and the mean of a normal distribution, to 5 standard errors: those
/// are deviation / sqrt(2 n) and deviation / sqrt(n).
void expect_normal(const std::vector<float>& got, double deviation) {
  const auto n = static_cast<double>(got.size());
  double sum = 0, squares = 0;
  for (const float x : got) sum += x, squares += double{x} * x;
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 5 * deviation / std::sqrt(2 * n));
  EXPECT_NEAR(sum / n, 0, 5 * deviation / std::sqrt(n));
}

void expect_all(const std::vector<float>& got, float value) {
  EXPECT_EQ(got, std::vector<float>(got.size(), value));
}

/// Three layers: six matrices add to the residual stream.
TEST(Numbers, Gpt2BeginsAsInTransformers) {
  const ParamTable table(arch_of(
      R"({"model_type":"gpt2","n_embd":128,"n_layer":3,"n_head":4,"n_positions":64,"vocab_size":300,"pad_token_id":7})"));
  const std::string layer = "transformer.h.1.";
  for (const std::string& name :
       {std::string("transformer.wte.weight"), std::string("transformer.wpe.weight"),
        layer + "attn.c_attn.weight", layer + "mlp.c_fc.weight"})
    expect_normal(values(table, name, 0.02), 0.02);
  for (const std::string& name : {layer + "attn.c_proj.weight", layer + "mlp.c_proj.weight"})
    expect_normal(values(table, name, 0.02), 0.02 / std::sqrt(6.0));
  for (const char* name : {"ln_1.bias", "attn.c_attn.bias", "attn.c_proj.bias", "mlp.c_proj.bias"})
    expect_all(values(table, layer + name, 0.02), 0);
  expect_all(values(table, layer + "ln_2.weight", 0.02), 1);
  const std::vector<float> rows = values(table, "transformer.wte.weight", 0.02);
  expect_normal({rows.begin() + 7 * 128, rows.begin() + 8 * 128}, 0.02);  // its embedding knows no padding
}

/// The other families scale nothing, but the padding token's row is zero.
TEST(Numbers, LlamaMistralAndQwenBeginAsInTransformers) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    const std::string config = fmt::format(
        R"({{"model_type":"{}","hidden_size":128,"intermediate_size":200,"num_hidden_layers":3,"num_attention_heads":4,
"num_key_value_heads":2,"vocab_size":300,"head_dim":32,"attention_bias":true,"mlp_bias":true,"pad_token_id":)",
        type);
    const ParamTable table(arch_of(config + "7}"));
    const std::string layer = "model.layers.2.";
    for (const char* name : {"self_attn.q_proj.weight", "self_attn.o_proj.weight", "mlp.gate_proj.weight",
                             "mlp.down_proj.weight"})
      expect_normal(values(table, layer + name, 0.03), 0.03);
    expect_normal(values(table, "lm_head.weight", 0.03), 0.03);
    for (const ParamSpec& spec : table.params())
      if (spec.shape.size() == 1)
        expect_all(values(table, spec.name, 0.03), spec.name.ends_with("bias") ? 0.0f : 1.0f);

    std::vector<float> rows = values(table, "model.embed_tokens.weight", 0.03);
    const auto padding = rows.begin() + 7 * 128;
    expect_all({padding, padding + 128}, 0);
    rows.erase(padding, padding + 128);
    expect_normal(rows, 0.03);
    for (const char* none : {"null", "-1", "300"})
      expect_normal(values(ParamTable(arch_of(config + none + "}")), "model.embed_tokens.weight", 0.03),
                    0.03);
  }
}

TEST(Numbers, InitialValuesAreTheSameInPieces) {
  const ParamTable table(arch_of(R"({"model_type":"llama","hidden_size":10,"num_hidden_layers":1,
"num_attention_heads":1,"vocab_size":30,"pad_token_id":3})"));
  const ParamSpec& spec = table.params().front();
  const std::vector<float> whole = values(table, spec.name, 0.02);
  for (const int64_t first : {0, 1, 25, 31, 39, 40, 299})
    for (const int64_t count : {0, 1, 2, 7, 30}) {
      if (first + count > spec.numel) continue;
      std::vector<float> piece(static_cast<size_t>(count), 7.0f);
      SeededWeights(table, 7, 0.02).read(spec, first, piece);
      EXPECT_EQ(piece, std::vector<float>(whole.begin() + first, whole.begin() + first + count)) << first;
    }
}

TEST(Numbers, InitialValuesDependOnSeedAndParameter) {
  const ParamTable table(arch_of(
      R"({"model_type":"llama","hidden_size":16,"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":30})"));
  const ParamSpec& q = *table.find("model.layers.0.self_attn.q_proj.weight");
  const auto read = [&](uint64_t seed, const ParamSpec& spec) {
    std::vector<float> out(static_cast<size_t>(spec.numel));
    SeededWeights(table, seed, 0.02).read(spec, 0, out);
    return out;
  };
  EXPECT_EQ(read(1, q), read(1, q));
  EXPECT_NE(read(1, q), read(2, q));
  EXPECT_NE(read(1, q), read(1, *table.find("model.layers.0.self_attn.o_proj.weight")));
}

}  // namespace
}  // namespace tandem
