// Model folders that are odd but right load; those that lie are refused in one line that says what to do.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/core/model_folder_testing.h"

namespace tandem {
namespace {

TEST(Checkpoint, QuantisedWeightsAreRefused) {
  const Model model(false);
  Tensors all = tensors(true);
  all["model.layers.0.mlp.up_proj.weight"] = {"F8_E4M3", {12, 8}, std::string(96, '\0')};
  model.weights(all);
  model.refused({"dtype F8_E4M3 can't be trained", "FP8", "\"model.layers.0.mlp.up_proj.weight\""});
  all["model.layers.0.mlp.up_proj.weight"] = {"U8", {48, 1}, std::string(48, '\0')};
  model.weights(all);
  model.refused({"dtype U8 can't be trained", "dequantise"});
}

TEST(Checkpoint, MixedFloatTypesLoadAndWideOnesAreNoted) {
  const Model model(false);
  Tensors all = tensors(true);
  std::string wide;
  for (int i = 0; i < 8; ++i) wide += bytes_of(static_cast<double>(i) + 0.5);
  all["model.norm.weight"] = {"F64", {8}, wide};
  model.weights(all);
  const ModelFolder folder = model.open();
  EXPECT_EQ(values(folder, "model.norm.weight")[3], 3.5f);
  EXPECT_TRUE(warned(folder, "F64 are rounded to fp32"));
}

TEST(Checkpoint, HeadsAreTiedOrStoredAndNeverMadeUp) {
  const Model untied(false), tied(true);
  untied.weights(tensors(false));
  untied.refused({"this weight is missing", "\"lm_head.weight\"", "tie_word_embeddings", "never made up"});
  tied.weights(tensors(false));
  EXPECT_FALSE(tied.open().stored_form().head_beside_tied_embedding);
  Tensors all = tensors(false);
  all["lm_head.weight"] = all["model.embed_tokens.weight"];
  tied.weights(all);
  EXPECT_TRUE(tied.open().stored_form().head_beside_tied_embedding);
  EXPECT_TRUE(tied.open().warnings().empty());
  tied.weights(tensors(true));
  tied.refused({"ties the head to the embedding, but the stored head differs", "\"lm_head.weight\"",
                "tie_word_embeddings to false"});
  all["lm_head.weight"].data.back() ^= 1;  // the last byte alone
  tied.weights(all);
  tied.refused({"the stored head differs"});
}

TEST(Checkpoint, QuantisedCheckpointsAreKnownByTheirTensors) {
  const Model model(false);
  const std::string layer = "model.layers.0.mlp.up_proj";
  for (const auto& [suffix, method] : {std::pair{".qweight", "GPTQ or AWQ"},
                                       {".weight_scale_inv", "FP8"},
                                       {".weight_scale", "FP8"},
                                       {".SCB", "bitsandbytes"},
                                       {".weight.absmax", "bitsandbytes"}})
    for (const bool beside : {true, false}) {
      Tensors all = tensors(true);
      if (!beside) all.erase(layer + ".weight");
      all[layer + suffix] = counting({2}, 0);
      model.weights(all);
      model.refused({"the checkpoint is quantised", method, suffix, "dequantise it first"});
    }
}

/// Whichever it is, it is named.
TEST(Checkpoint, NoParameterIsLeftUnfilled) {
  const Model model(false);
  const Tensors all = tensors(true);
  for (const auto& [name, tensor] : all) {
    Tensors lacking = all;
    lacking.erase(name);
    model.weights(lacking);
    model.refused({"this weight is missing", fmt::format("\"{}\"", name).c_str()});
  }
  model.weights(all);
  EXPECT_TRUE(model.open().warnings().empty());
}

/// What config.json does not say means another thing for GPT-2 than for Llama.
TEST(Checkpoint, WhetherTheHeadIsTiedDependsOnTheFamilyWhereTheKeyIsAbsent) {
  const TemporaryFolder llama, gpt2;
  const std::string config = kConfig;
  llama.write("config.json", config.substr(0, config.find(",\"tie_word_embeddings\"")) + "}");
  llama.write("model.safetensors", file_of(tensors(true)));
  const ModelFolder untied(llama.path());
  EXPECT_FALSE(untied.arch().tied);
  expect_counting(values(untied, "lm_head.weight"), 100);
  llama.write("model.safetensors", file_of(tensors(false)));
  expect_error(Status::failed, {"this weight is missing", "\"lm_head.weight\"", "never made up"},
               [&] { ModelFolder{llama.path()}; });

  gpt2.write("config.json", kGpt2);
  gpt2.write("model.safetensors", file_of(gpt2_tensors("transformer.")));
  EXPECT_TRUE(ModelFolder(gpt2.path()).arch().tied);
  Tensors other = gpt2_tensors("transformer.");
  other["lm_head.weight"] = counting({10, 8}, 50);
  gpt2.write("model.safetensors", file_of(other));
  expect_error(Status::failed,
               {"the stored head differs from \"transformer.wte.weight\"", "tie_word_embeddings"},
               [&] { ModelFolder{gpt2.path()}; });
}

TEST(Checkpoint, OddHeadersScalarsAndEmptyTensorsLoad) {
  const Model model(false);
  Tensors all = tensors(true);
  all["!first"] = {"U8", {}, "x"};  // a scalar of one byte: everything after it begins at an odd byte
  all["empty"] = {"F32", {0, 7}, ""};
  std::string bytes = file_of(all);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const std::string extra = length % 2 == 0 ? R"("x":[{}],)" : R"("x":[{ }],)";
  const size_t at = bytes.find("\"dtype\"");
  std::string json = bytes.substr(8, length), data = bytes.substr(8 + length);
  json.insert(at - 8, extra);  // a key that the format does not know
  if (json.size() % 2 == 0) json += ' ';
  model.folder.write("model.safetensors", safetensors_bytes(json, data));
  const ModelFolder folder = model.open();
  expect_counting(values(folder, "model.embed_tokens.weight"), 1);
  expect_counting(values(folder, "lm_head.weight"), 100);
  EXPECT_TRUE(warned(folder, "a llama model has no use for: \"!first\", \"empty\""));
}

TEST(Checkpoint, EveryFloatTypeMayStandInOneFile) {
  const Model model(false);
  Tensors all = tensors(true);
  std::string single, half, wide;
  for (int i = 0; i < 8; ++i) {
    single += bytes_of(static_cast<float>(i) + 0.1f);
    half += bytes_of(static_cast<uint16_t>(0x3C00 + i));  // 1 + i / 1024
    wide += bytes_of(static_cast<double>(i) + 0.1);
  }
  all["model.norm.weight"] = {"F32", {8}, single};
  all["model.layers.0.input_layernorm.weight"] = {"F16", {8}, half};
  all["model.layers.0.post_attention_layernorm.weight"] = {"F64", {8}, wide};
  model.weights(all);
  const ModelFolder folder = model.open();
  const std::vector<float> f32 = values(folder, "model.norm.weight"),
                           f16 = values(folder, "model.layers.0.input_layernorm.weight"),
                           f64 = values(folder, "model.layers.0.post_attention_layernorm.weight");
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(f32[i], static_cast<float>(i) + 0.1f);
    EXPECT_EQ(f16[i], 1 + static_cast<float>(i) / 1024);
    EXPECT_EQ(f64[i], static_cast<float>(static_cast<double>(i) + 0.1));
  }
  expect_counting(values(folder, "lm_head.weight"), 100);
}

TEST(Checkpoint, AnIndexThatIsNoIndexSaysWhatToDo) {
  const Model model(false);
  model.shards(tensors(true));
  for (const char* text :
       {"", "{", "[]", R"({"weight_map":[]})", R"({"weight_map":{"model.norm.weight":7}})", "<html>"}) {
    model.folder.write("model.safetensors.index.json", text);
    model.refused({"model.safetensors.index.json", "download the model again"});
  }
}

/// A header that claims to be larger than its file costs nothing: it is refused before anything is read.
TEST(Checkpoint, ClaimsOfAShardAreCheckedAgainstItsFile) {
  const Model model(false);
  model.shards(tensors(true));
  for (const uint64_t length : {uint64_t{1} << 63, uint64_t{100'000'001}, uint64_t{99'999'999}}) {
    model.folder.write("layers-0.safetensors", bytes_of(length) + "{}");
    model.refused({std::to_string(length).c_str(), "layers-0.safetensors"});
  }
}

}  // namespace
}  // namespace tandem
