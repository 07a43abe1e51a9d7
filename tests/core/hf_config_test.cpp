#include "core/io/hf_config.h"

#include <gtest/gtest.h>

#include "core/model/params.h"
#include "tests/core/hf_config_testing.h"

namespace tandem {
namespace {

TEST(Config, MissingKeysMeanTransformersDefaultsForLlama) {
  const Arch arch = arch_of(R"({"model_type":"llama"})");
  EXPECT_EQ(arch.model_type, "llama");
  EXPECT_EQ(arch.vocab, 32000);
  EXPECT_EQ(arch.hidden, 4096);
  EXPECT_EQ(arch.intermediate, 11008);
  EXPECT_EQ(arch.layers, 32);
  EXPECT_EQ(arch.heads, 32);
  EXPECT_EQ(arch.kv_heads, 32);
  EXPECT_EQ(arch.head_dim, 128);
  EXPECT_EQ(arch.max_positions, 2048);
  EXPECT_EQ(arch.norm_eps, 1e-6);
  EXPECT_EQ(arch.initializer_range, 0.02);
  EXPECT_FALSE(arch.tied);
  EXPECT_EQ(arch.rope.theta, 10000.0);
  EXPECT_EQ(arch.rope.scaling, RopeScaling::none);
}

TEST(Config, MissingKeysMeanTransformersDefaultsForEveryFamily) {
  const Arch mistral = arch_of(R"({"model_type":"mistral"})");
  EXPECT_EQ(mistral.vocab, 32000);
  EXPECT_EQ(mistral.intermediate, 14336);
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.head_dim, 128);
  EXPECT_EQ(mistral.max_positions, 131072);
  EXPECT_EQ(mistral.windows, std::vector<int64_t>(32, 4096));
  EXPECT_FALSE(mistral.qkv_bias);
  for (const char* type : {"qwen2", "qwen3"}) {
    const Arch qwen = arch_of(fmt::format(R"({{"model_type":"{}"}})", type));
    EXPECT_EQ(qwen.vocab, 151936);
    EXPECT_EQ(qwen.hidden, 4096);
    EXPECT_EQ(qwen.intermediate, 22016);
    EXPECT_EQ(qwen.layers, 32);
    EXPECT_EQ(qwen.kv_heads, 32);
    EXPECT_EQ(qwen.head_dim, 128);
    EXPECT_EQ(qwen.max_positions, 32768);
    EXPECT_EQ(qwen.windows, std::vector<int64_t>(32, 0));
    EXPECT_FALSE(qwen.tied);
    EXPECT_EQ(qwen.qkv_bias, qwen.model_type == "qwen2");
    EXPECT_EQ(qwen.qk_norm, qwen.model_type == "qwen3");
    EXPECT_FALSE(qwen.o_bias);
    EXPECT_FALSE(qwen.mlp_bias);
  }
}

TEST(Config, Gpt2HasItsOwnKeysAndDefaults) {
  const Arch plain = arch_of(R"({"model_type":"gpt2"})");
  EXPECT_EQ(plain.naming, Naming::gpt2);
  EXPECT_TRUE(plain.layer_norm && plain.learned_positions && plain.gelu && plain.tied);
  EXPECT_EQ(plain.vocab, 50257);
  EXPECT_EQ(plain.hidden, 768);
  EXPECT_EQ(plain.intermediate, 4 * 768);
  EXPECT_EQ(plain.layers, 12);
  EXPECT_EQ(plain.heads, 12);
  EXPECT_EQ(plain.head_dim, 64);
  EXPECT_EQ(plain.max_positions, 1024);
  EXPECT_EQ(plain.norm_eps, 1e-5);
  EXPECT_EQ(plain.dropout, 0.1);
  EXPECT_EQ(ParamTable(plain).parameter_count(), 124439808);  // as published: 124M
  const Arch set = arch_of(R"({"model_type":"gpt2","n_embd":64,"n_inner":96,"n_layer":2,"n_head":4,
    "n_positions":32,"tie_word_embeddings":false,"resid_pdrop":0,"embd_pdrop":0.0,"attn_pdrop":0,
    "activation_function":"gelu_pytorch_tanh"})");
  EXPECT_EQ(set.intermediate, 96);
  EXPECT_EQ(set.dropout, 0);
  EXPECT_FALSE(set.tied);
  const auto gpt2 = [](const std::string& more) { return R"({"model_type":"gpt2",)" + more + "}"; };
  refused(gpt2(R"("activation_function":"relu")"), {"activation_function \"relu\"", "gelu_new"});
  refused(gpt2(R"("scale_attn_weights":false)"), {"scale_attn_weights false"});
  refused(gpt2(R"("scale_attn_by_inverse_layer_idx":true)"), {"scale_attn_by_inverse_layer_idx true"});
  refused(gpt2(R"("add_cross_attention":true)"), {"add_cross_attention true"});
  refused(gpt2(R"("n_head":7)"), {"n_embd 768 is no multiple of n_head 7"});
}

/// Four heads, three layers.
std::string small(const char* type, const std::string& more) {
  return fmt::format(
      R"({{"model_type":"{}","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,{}}})",
      type, more);
}

TEST(Config, WindowsAreThoseOfTheFamily) {
  const auto windows = [](const char* type, const std::string& more) {
    return arch_of(small(type, more)).windows;
  };
  using W = std::vector<int64_t>;
  EXPECT_EQ(windows("llama", R"("sliding_window":16)"), W());
  EXPECT_EQ(windows("mistral", R"("sliding_window":16)"), W(3, 16));
  EXPECT_EQ(windows("mistral", R"("sliding_window":null)"), W(3, 0));
  for (const char* qwen : {"qwen2", "qwen3"}) {
    const std::string on = R"("use_sliding_window":true,"sliding_window":16)";
    EXPECT_EQ(windows(qwen, R"("sliding_window":16,"max_window_layers":0)"), W(3, 0));
    EXPECT_EQ(windows(qwen, on), W(3, 0));  // from layer 28 on
    EXPECT_EQ(windows(qwen, on + R"(,"max_window_layers":2)"), (W{0, 0, 16}));
    EXPECT_EQ(windows(qwen, on + R"(,"max_window_layers":0)"), W(3, 16));
    EXPECT_EQ(windows(qwen, R"("use_sliding_window":true,"max_window_layers":0)"), W(3, 4096));
    EXPECT_EQ(windows(qwen, R"("use_sliding_window":true,"sliding_window":null,"max_window_layers":0)"),
              W(3, 0));
    const std::string types = R"(,"layer_types":["sliding_attention","full_attention","sliding_attention"])";
    EXPECT_EQ(windows(qwen, on + R"(,"max_window_layers":2)" + types), (W{16, 0, 16}));
    refused(small(qwen, R"("sliding_window":16)" + types),
            {"the config sets none", "use_sliding_window", "layer_types[0]"});
    refused(small(qwen, on + R"(,"layer_types":["full_attention"])"), {"1 entries for 3 layers"});
    refused(small(qwen, on + R"(,"layer_types":["full_attention","full_attention","linear_attention"])"),
            {"\"linear_attention\" is not supported", "sliding_attention"});
    refused(small(qwen, on + R"(,"max_window_layers":-1)"), {"max_window_layers must be 0 or more"});
  }
}

TEST(Config, BiasesAreThoseOfTheFamily) {
  const auto biases = [](const char* type, const std::string& more) {
    const Arch arch = arch_of(small(type, more));
    return fmt::format("{}{}{}", arch.qkv_bias ? "q" : "", arch.o_bias ? "o" : "", arch.mlp_bias ? "m" : "");
  };
  EXPECT_EQ(biases("llama", R"("attention_bias":true)"), "qo");
  EXPECT_EQ(biases("llama", R"("mlp_bias":true)"), "m");
  EXPECT_EQ(biases("mistral", R"("attention_bias":true,"mlp_bias":true)"), "");  // keys it does not have
  EXPECT_EQ(biases("qwen2", R"("attention_bias":false,"mlp_bias":true)"), "q");
  EXPECT_EQ(biases("qwen3", R"("attention_bias":true,"mlp_bias":true)"), "qo");
}

TEST(Config, DropoutIsReadButNeverRefused) {
  EXPECT_EQ(arch_of(tiny(R"("attention_dropout":0.1)")).dropout, 0.1);
  EXPECT_EQ(arch_of(tiny(R"("attention_dropout":0)")).dropout, 0);
}

TEST(Config, HeadsThatAreAbsentAndNullDiffer) {
  EXPECT_EQ(arch_of(R"({"model_type":"qwen2","num_key_value_heads":null,"num_attention_heads":16})").kv_heads,
            16);
  refused(R"({"model_type":"qwen2","num_attention_heads":16})",
          {"num_attention_heads 16 is no multiple of num_key_value_heads 32"});
  EXPECT_EQ(arch_of(small("qwen2", R"("x":0)")).head_dim, 16);
  EXPECT_EQ(arch_of(small("qwen3", R"("x":0)")).head_dim, 128);
}

/// The keys of SmolLM2-135M's config.json.
TEST(Config, ReadsARealConfig) {
  const Arch arch = arch_of(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0,
    "eos_token_id": [0, 2], "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "pad_token_id": null, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 49152
  })");
  EXPECT_EQ(arch.hidden, 576);
  EXPECT_EQ(arch.intermediate, 1536);
  EXPECT_EQ(arch.layers, 30);
  EXPECT_EQ(arch.heads, 9);
  EXPECT_EQ(arch.kv_heads, 3);
  EXPECT_EQ(arch.head_dim, 64);
  EXPECT_EQ(arch.vocab, 49152);
  EXPECT_EQ(arch.max_positions, 8192);
  EXPECT_EQ(arch.norm_eps, 1e-5);
  EXPECT_EQ(arch.rope.theta, 100000.0);
  EXPECT_EQ(arch.initializer_range, 0.041666666666666664);
  EXPECT_TRUE(arch.tied);
}

TEST(Config, NullIsLikeAbsent) {
  const Arch arch =
      arch_of(tiny(R"("num_key_value_heads":null,"head_dim":null,"rope_scaling":null,"rope_parameters":null,
    "pad_token_id":null,"sliding_window":null,"quantization_config":null,"architectures":null,"tie_word_embeddings":null,
    "max_position_embeddings":null,"attention_bias":null,"hidden_act":null)"));
  EXPECT_EQ(arch.kv_heads, 4);
  EXPECT_EQ(arch.head_dim, 16);
  EXPECT_EQ(arch.max_positions, 2048);
  EXPECT_FALSE(arch.tied);
}

TEST(Config, HeadDimMayDifferFromHiddenByHeads) {
  EXPECT_EQ(arch_of(tiny(R"("head_dim":24)")).head_dim, 24);
  const Arch uneven =
      arch_of(R"({"model_type":"llama","hidden_size":64,"num_attention_heads":5,"head_dim":16})");
  EXPECT_EQ(uneven.head_dim, 16);
  EXPECT_EQ(uneven.heads, 5);
}

TEST(Config, AcceptsJsonAsPythonWritesIt) {
  const Arch arch =
      arch_of("\xEF\xBB\xBF" + tiny(R"("intermediate_size":1e3,"rope_theta":1e6,"router":NaN,"x":-Infinity,
    "max_position_embeddings":128.0,"eos_token_id":[1,2])"));
  EXPECT_EQ(arch.intermediate, 1000);
  EXPECT_EQ(arch.rope.theta, 1e6);
  EXPECT_EQ(arch.max_positions, 128);
}

TEST(Config, ModelsThatWouldComputeSomethingElseAreRefusedByName) {
  refused(R"({"model_type":"mamba"})",
          {"model_type \"mamba\" can't be trained", "llama, mistral, qwen2, qwen3, gpt2",
           "config.json:1:15 (model_type)"});
  refused(R"({"hidden_size":64})", {"names no model_type", "llama"});
  refused(tiny(R"("architectures":["LlamaForSequenceClassification"])"),
          {"\"LlamaForSequenceClassification\" can't be trained", "LlamaForCausalLM"});
  refused(tiny(R"("quantization_config":{"quant_method":"gptq","bits":4})"),
          {"quantised (\"gptq\")", "dequantise"});
  refused(tiny(R"("quantization_config":{})"), {"quantised (method not named)"});
  refused(tiny(R"("hidden_act":"gelu")"), {"hidden_act \"gelu\"", "silu"});
  EXPECT_EQ(arch_of(tiny(R"("architectures":["Other","LlamaForCausalLM"])")).layers, 2);
  EXPECT_EQ(arch_of(tiny(R"("architectures":[])")).layers, 2);
}

/// The head is another one: the line says which model is needed.
TEST(Config, ClassifiersAndRewardModelsAreRefused) {
  for (const char* type :
       {"ForSequenceClassification", "ForTokenClassification", "ForRewardModel", "Model"}) {
    refused(tiny(fmt::format(R"("architectures":["Llama{}"])", type)),
            {type, "can't be trained", "a llama model needs LlamaForCausalLM", "reward models",
             "config.json:1:", "(architectures)"});
  }
  refused(R"({"model_type":"gpt2","architectures":["GPT2DoubleHeadsModel"]})", {"needs GPT2LMHeadModel"});
  refused(tiny(R"("architectures":"LlamaForCausalLM")"), {"architectures"});
  refused(tiny(R"("architectures":[1])"), {"architectures[0]"});
}

TEST(Config, WhatIsNoConfigSaysWhatToDo) {
  for (const char* text : {"", "{", "{]", "version https://git-lfs.github.com/spec/v1", "<html>"})
    refused(text, {"config.json", "download the file again"});
  refused("{\"a\":1,}", {"config.json:1:8", "remove the trailing comma"});
  refused("[1]", {"must be an object", "compare with"});
  refused(R"({"model_type":"llama","model_type":"llama"})", {"\"model_type\" is there twice", "keep one"});
  refused(R"({"model_type":7})", {"model_type must be a string, but is 7", "compare with"});
  for (const char* keys :
       {R"("tie_word_embeddings":"yes")", R"("attention_bias":1)", R"("hidden_act":["silu"])",
        R"("rope_scaling":"linear")", R"("rope_parameters":[1])"})
    refused(tiny(keys),
            {"must be", "compare with the config.json of the model's publisher", "config.json:1:"});
}

TEST(Config, IdsOfSpecialTokensAreOfAnyForm) {
  for (const char* ids :
       {R"("eos_token_id":[128001,128008,128009],"bos_token_id":128000)",
        R"("eos_token_id":2,"bos_token_id":null)", R"("eos_token_id":null,"pad_token_id":-1)",
        R"("eos_token_id":[],"pad_token_id":null)"})
    EXPECT_EQ(arch_of(tiny(ids)).padding_row, -1) << ids;
  EXPECT_EQ(arch_of(tiny(R"("pad_token_id":3)")).padding_row, 3);
}

TEST(Config, QuantisedCheckpointsAreNamed) {
  for (const char* method : {"gptq", "awq", "fp8", "bitsandbytes", "compressed-tensors"})
    refused(tiny(fmt::format(R"("quantization_config":{{"quant_method":"{}","bits":4}})", method)),
            {"quantised", method, "dequantise it first", "(quantization_config)"});
  EXPECT_EQ(arch_of(tiny(R"("quantization_config":null)")).layers, 2);
}

/// transformers reads GPT-2's sizes under both names; heads of another number would have the same shapes.
TEST(Config, Gpt2SizesMayHaveTheNamesOfOtherFamilies) {
  const Arch arch = arch_of(
      R"({"model_type":"gpt2","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"max_position_embeddings":32})");
  EXPECT_EQ(arch.hidden, 64);
  EXPECT_EQ(arch.heads, 4);
  EXPECT_EQ(arch.layers, 2);
  EXPECT_EQ(arch.max_positions, 32);
  EXPECT_EQ(arch_of(R"({"model_type":"gpt2","n_head":8,"num_attention_heads":4})").heads, 8);
}

TEST(Config, KeysThatChangeNothingAreIgnored) {
  EXPECT_EQ(arch_of(tiny(R"("use_cache":false,"pretraining_tp":2,"auto_map":{"x":"y"},"dtype":"float16",
"torch_dtype":"torch.bfloat16","hidden_act":"swish","_name_or_path":"","new":[{"deep":[1]}])"))
                .layers,
            2);
}

TEST(Config, SizesThatCannotBeAreNamed) {
  for (const char* key :
       {"hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings"})
    for (const char* value : {"0", "-1", "1.5", "\"64\"", "1e30", "9223372036854775807", "true", "NaN"})
      refused(fmt::format(R"({{"model_type":"llama","{}":{}}})", key, value),
              {key, "must be an integer from 1 to"});
  refused(tiny(R"("num_key_value_heads":3)"),
          {"num_attention_heads 4 is no multiple of num_key_value_heads 3"});
  refused(tiny(R"("num_key_value_heads":8)"),
          {"num_attention_heads 4 is no multiple of num_key_value_heads 8"});
  refused(tiny(R"("head_dim":15)"), {"head_dim 15 is odd"});
  refused(R"({"model_type":"llama","hidden_size":65,"num_attention_heads":4})",
          {"hidden_size 65 is no multiple", "head_dim"});
  refused(tiny(R"("rms_norm_eps":0)"), {"rms_norm_eps must be a number above 0"});
  refused(tiny(R"("rms_norm_eps":NaN)"), {"rms_norm_eps must be a number above 0"});
}

/// model.config of a Tandem config: its place and status are that of the config.
TEST(Config, ObjectInsideATandemConfigKeepsItsPlace) {
  const json::Document document =
      json::parse("{\"model\":{\"config\":{\n \"model_type\":\"gpt5\"}}}", "mine.json");
  const json::Node config = json::Node(document).at("model").at("config");
  expect_error(Status::usage, {"\"gpt5\"", "mine.json:2:15 (model.config.model_type)"},
               [&] { parse_hf_config(config); });
}

TEST(Config, RenderedConfigHasItsOwnKeysAndWhatTransformersNeeds) {
  const json::Document document =
      json::parse(tiny(R"("custom":[1,2.5],"torch_dtype":"float32")"), "mine.json");
  const json::Document back = parse_hf_json(render_hf_config(document.root, DType::bf16), "config.json");
  EXPECT_EQ(*back.root.find("torch_dtype")->string(), "bfloat16");
  EXPECT_EQ(*back.root.find("model_type")->string(), "llama");
  EXPECT_EQ(*back.root.find("architectures")->array()->at(0).string(), "LlamaForCausalLM");
  EXPECT_EQ(*back.root.find("custom"), *document.root.find("custom"));
  EXPECT_EQ(back.root.object()->size(), document.root.object()->size() + 1);
  const Arch before = parse_hf_config(json::Node(document)), after = parse_hf_config(json::Node(back));
  EXPECT_EQ(before.vocab, after.vocab);
  EXPECT_EQ(before.hidden, after.hidden);
}

std::string stored(const std::string& text, DType dtype) {
  return with_stored_dtype(text, parse_hf_json(text, "config.json"), dtype);
}

TEST(Checkpoint, ConfigKeepsEveryByteButAFalseDtype) {
  EXPECT_EQ(
      stored("{ \"é\" : 1,\r\n\t\"ü\":\"ß\", \"torch_dtype\" :  \"float32\" , \"x\": NaN }\n\n", DType::bf16),
      "{ \"é\" : 1,\r\n\t\"ü\":\"ß\", \"torch_dtype\" :  \"bfloat16\" , \"x\": NaN }\n\n");
  EXPECT_EQ(stored("\xEF\xBB\xBF{\"dtype\":\"bfloat16\",\n\"torch_dtype\":\"float16\"}", DType::f32),
            "\xEF\xBB\xBF{\"dtype\":\"float32\",\n\"torch_dtype\":\"float32\"}");
  for (const char* same : {"{\"torch_dtype\":\"bfloat16\"}", "{\"dtype\" : \"torch.bfloat16\"}",
                           "{\"torch_dtype\":null}", "{}", "{\"text\":{\"torch_dtype\":\"float32\"}}"})
    EXPECT_EQ(stored(same, DType::bf16), same);
  EXPECT_EQ(stored(R"({"torch_dtype": "a\"b\\", "dtype":"\u00e9"})", DType::f16),
            R"({"torch_dtype": "float16", "dtype":"float16"})");
}

}  // namespace
}  // namespace tandem
