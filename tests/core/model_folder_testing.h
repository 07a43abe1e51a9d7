#pragma once
// Tiny model folders, spelt byte by byte without the code under test.
#include <map>
#include <string>
#include <vector>

#include "core/io/model_folder.h"
#include "tests/core/expect_error.h"
#include "tests/core/safetensors_bytes.h"
#include "tests/core/temporary_folder.h"

namespace tandem {

/// One stored tensor, spelt without the code under test.
struct Stored {
  std::string dtype;
  std::vector<int> shape;
  std::string data;
};
using Tensors = std::map<std::string, Stored>;

inline std::string file_of(const Tensors& tensors) {
  std::string json = "{", data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const int dim : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    json += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json.size() > 1 ? "," : "", name, tensor.dtype, shape, data.size(),
                        data.size() + tensor.data.size());
    data += tensor.data;
  }
  return safetensors_bytes(json + "}", data);
}

/// A bf16 tensor whose element i is start + i, exact below 256.
inline Stored counting(std::vector<int> shape, int start) {
  int count = 1;
  for (const int dim : shape) count *= dim;
  std::string data;
  for (int i = 0; i < count; ++i) data += bytes_of(to_bf16(static_cast<float>((start + i) % 256)).bits);
  return {"BF16", std::move(shape), data};
}

inline constexpr const char* kConfig =
    R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,
"num_key_value_heads":1,"vocab_size":10,"torch_dtype":"bfloat16","tie_word_embeddings":)";

/// Hidden 8, 2 heads of 4, 1 kv head, intermediate 12, vocab 10, one layer; the names as Llama files have
/// them.
inline Tensors tensors(bool head) {
  const std::string layer = "model.layers.0.";
  Tensors all{{"model.embed_tokens.weight", counting({10, 8}, 1)},
              {layer + "input_layernorm.weight", counting({8}, 2)},
              {layer + "self_attn.q_proj.weight", counting({8, 8}, 3)},
              {layer + "self_attn.k_proj.weight", counting({4, 8}, 4)},
              {layer + "self_attn.v_proj.weight", counting({4, 8}, 5)},
              {layer + "self_attn.o_proj.weight", counting({8, 8}, 6)},
              {layer + "post_attention_layernorm.weight", counting({8}, 7)},
              {layer + "mlp.gate_proj.weight", counting({12, 8}, 8)},
              {layer + "mlp.up_proj.weight", counting({12, 8}, 9)},
              {layer + "mlp.down_proj.weight", counting({8, 12}, 10)},
              {"model.norm.weight", counting({8}, 11)}};
  if (head) all["lm_head.weight"] = counting({10, 8}, 100);
  return all;
}

struct Model {
  TemporaryFolder folder;
  explicit Model(bool tied) {
    folder.write("config.json", std::string(kConfig) + (tied ? "true}" : "false}"));
  }
  void weights(const Tensors& all) const { folder.write("model.safetensors", file_of(all)); }
  ModelFolder open() const { return ModelFolder(folder.path()); }
  void refused(std::initializer_list<const char*> parts) const {
    expect_error(Status::failed, parts, [&] { open(); });
  }
  /// Two shards with habitual and unusual names, and their index.
  void shards(const Tensors& all) const {
    Tensors first, second;
    std::string map;
    for (const auto& [name, tensor] : all) {
      const bool layer = name.find("layers") != std::string::npos;
      (layer ? first : second)[name] = tensor;
      map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name,
                         layer ? "layers-0.safetensors" : "model-00001-of-00002.safetensors");
    }
    folder.write("layers-0.safetensors", file_of(first));
    folder.write("model-00001-of-00002.safetensors", file_of(second));
    folder.write("model.safetensors.index.json",
                 R"({"metadata":{"total_size":1.5e3},"weight_map":{)" + map + "}}");
  }
};

inline std::vector<float> values(const ModelFolder& model, const std::string& name) {
  const ParamTable table(model.arch());
  const ParamSpec* spec = table.find(name);
  std::vector<float> out(static_cast<size_t>(spec->numel));
  model.read(*spec, 0, out, NonFinite::refuse);
  return out;
}

inline void expect_counting(const std::vector<float>& got, int start) {
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i], static_cast<float>((start + static_cast<int>(i)) % 256));
}

inline bool warned(const ModelFolder& model, const std::string& part) {
  for (const std::string& warning : model.warnings())
    if (warning.find(part) != std::string::npos) return true;
  return false;
}

inline constexpr const char* kGpt2 =
    R"({"model_type":"gpt2","n_embd":8,"n_inner":12,"n_layer":1,"n_head":2,"vocab_size":10,"n_positions":6})";

/// Names and shapes as GPT-2 files have them: linear weights are [in, out].
inline Tensors gpt2_tensors(const std::string& prefix) {
  const std::string layer = prefix + "h.0.";
  return {{prefix + "wte.weight", counting({10, 8}, 1)},
          {prefix + "wpe.weight", counting({6, 8}, 2)},
          {layer + "ln_1.weight", counting({8}, 3)},
          {layer + "ln_1.bias", counting({8}, 4)},
          {layer + "attn.c_attn.weight", counting({8, 24}, 5)},
          {layer + "attn.c_attn.bias", counting({24}, 6)},
          {layer + "attn.c_proj.weight", counting({8, 8}, 7)},
          {layer + "attn.c_proj.bias", counting({8}, 8)},
          {layer + "ln_2.weight", counting({8}, 9)},
          {layer + "ln_2.bias", counting({8}, 10)},
          {layer + "mlp.c_fc.weight", counting({8, 12}, 11)},
          {layer + "mlp.c_fc.bias", counting({12}, 12)},
          {layer + "mlp.c_proj.weight", counting({12, 8}, 13)},
          {layer + "mlp.c_proj.bias", counting({8}, 14)},
          {prefix + "ln_f.weight", counting({8}, 15)},
          {prefix + "ln_f.bias", counting({8}, 16)}};
}

}  // namespace tandem
