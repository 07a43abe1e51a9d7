#include "core/io/model_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/core/model_folder_testing.h"

namespace tandem {
namespace {

TEST(Checkpoint, ModelFolderGivesEveryParameter) {
  const Model model(false);
  model.weights(tensors(true));
  const ModelFolder folder = model.open();
  EXPECT_TRUE(folder.warnings().empty());
  EXPECT_EQ(folder.arch().kv_heads, 1);
  EXPECT_FALSE(folder.stored_form().head_beside_tied_embedding);
  expect_counting(values(folder, "model.embed_tokens.weight"), 1);
  expect_counting(values(folder, "model.layers.0.self_attn.v_proj.weight"), 5);
  expect_counting(values(folder, "model.layers.0.mlp.down_proj.weight"), 10);
  expect_counting(values(folder, "lm_head.weight"), 100);
  const ParamTable table(folder.arch());
  std::vector<float> part(5);
  folder.read(*table.find("model.norm.weight"), 3, part, NonFinite::accept);
  expect_counting(part, 14);
}

TEST(Checkpoint, ModelFolderFollowsTheIndexWhateverShardsAreCalled) {
  const Model model(false);
  Tensors all = tensors(true);
  model.shards(all);
  const ModelFolder folder = model.open();
  expect_counting(values(folder, "model.layers.0.mlp.up_proj.weight"), 9);
  expect_counting(values(folder, "lm_head.weight"), 100);
  EXPECT_TRUE(folder.warnings().empty());
}

TEST(Checkpoint, ModelFolderFollowsLinksIntoACache) {
  const Model model(false);
  std::filesystem::create_directory(model.folder.path("blobs"));
  model.folder.write("blobs/0123abcd", file_of(tensors(true)));
  std::filesystem::create_symlink("blobs/0123abcd", model.folder.path("model.safetensors"));
  expect_counting(values(model.open(), "lm_head.weight"), 100);
  std::filesystem::remove(model.folder.path("blobs/0123abcd"));
  model.refused({"a link to \"blobs/0123abcd\", which does not exist", "model.safetensors"});
}

TEST(Checkpoint, IndexThatPointsNowhereOrOutsideIsRefused) {
  const Model model(false);
  model.shards(tensors(true));
  const std::string index = model.folder.read("model.safetensors.index.json");
  const auto with_shard = [&](const std::string& shard) {
    std::string changed = index;
    changed.replace(changed.find("layers-0.safetensors"), 20, shard);
    model.folder.write("model.safetensors.index.json", changed);
  };
  with_shard("absent.safetensors");
  model.refused({"1 shard(s) that the index names are not there: \"absent.safetensors\"", "index.json"});
  for (const char* shard :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\\\b", "..", "", "a\\u0000"}) {
    with_shard(shard);
    model.refused({"is no plain file name", "index.json \"model.layers.0."});
  }
  with_shard("model-00001-of-00002.safetensors");
  model.refused({"places this tensor in model-00001-of-00002.safetensors, which doesn't hold it",
                 "index.json \"model.layers.0."});
  model.folder.write("model.safetensors.index.json", R"({"metadata":{}})");
  model.refused({"no \"weight_map\"", "index.json:1:1"});
  model.folder.write("model.safetensors.index.json", R"({"weight_map":{}})");
  model.refused({"names no tensors"});
}

TEST(Checkpoint, StraysAreIgnoredAndNamed) {
  const Model model(false);
  Tensors all = tensors(true);
  all["model.layers.0.self_attn.rotary_emb.inv_freq"] = counting({2}, 0);
  model.weights(all);
  model.folder.write("consolidated.safetensors", "garbage");
  EXPECT_EQ(model.open().warnings(),
            (std::vector<std::string>{
                "ignored: files that are no part of the model: \"consolidated.safetensors\""}));
  all["model.layers.0.self_attn.q_proj.bias"] = counting({8}, 0);
  model.weights(all);
  EXPECT_TRUE(warned(model.open(), "a llama model has no use for: \"model.layers.0.self_attn.q_proj.bias\""));
}

TEST(Checkpoint, TensorsThatTheIndexDoesNotNameAreIgnored) {
  const Model model(false);
  model.shards(tensors(true));
  std::string index = model.folder.read("model.safetensors.index.json");
  Tensors other = {{"lm_head.weight", counting({10, 8}, 7)}, {"extra", counting({1}, 0)}};
  for (const auto& [name, tensor] : tensors(false))
    if (name.find("layers") != std::string::npos) other[name] = tensor;
  model.folder.write("layers-0.safetensors",
                     file_of(other));  // a second lm_head, which the index doesn't mean
  const ModelFolder folder = model.open();
  expect_counting(values(folder, "lm_head.weight"), 100);
  EXPECT_TRUE(warned(folder, "doesn't place in their shard: \"extra\", \"lm_head.weight\""));
}

TEST(Checkpoint, SingleFileComesBeforeAnIndex) {
  const Model model(false);
  Tensors old = tensors(true);
  old["gone"] = counting({1}, 0);
  model.shards(old);
  Tensors all = tensors(true);
  all["lm_head.weight"] = counting({10, 8}, 33);
  model.weights(all);
  const ModelFolder folder = model.open();
  expect_counting(values(folder, "lm_head.weight"), 33);
  EXPECT_TRUE(warned(folder,
                     "model.safetensors is read; model.safetensors.index.json is ignored, though it names "
                     "tensors that the file doesn't hold: \"gone\""));
  EXPECT_TRUE(warned(folder, "\"layers-0.safetensors\", \"model-00001-of-00002.safetensors\""));
  model.folder.write("model.safetensors.index.json", "{");
  EXPECT_TRUE(warned(model.open(), "is ignored (it is broken: "));
}

TEST(Checkpoint, FoldersWithoutWeightsSayWhatIsThere) {
  const Model model(false);
  model.refused({"neither model.safetensors nor model.safetensors.index.json", "download the model again"});
  model.folder.write("pytorch_model.bin", "x");
  model.refused({"convert \"pytorch_model.bin\" with save_pretrained"});
  model.folder.write("model-00001-of-00002.safetensors", "x");
  model.refused({"the folder holds \"model-00001-of-00002.safetensors\"", "download the index"});
  std::filesystem::remove(model.folder.path("config.json"));
  model.refused({"holds no config.json"});
  expect_error(Status::usage, {"no such folder"}, [&] { ModelFolder(model.folder.path("absent")); });
  expect_error(Status::usage, {"a file where a model folder is needed"},
               [&] { ModelFolder(model.folder.path("pytorch_model.bin")); });
}

TEST(Checkpoint, MissingAndMisshapenWeightsAreNamed) {
  const Model model(false);
  Tensors all = tensors(true);
  all.erase("model.layers.0.mlp.up_proj.weight");
  model.weights(all);
  model.refused(
      {"this weight is missing", "\"model.layers.0.mlp.up_proj.weight\"", "names like \"lm_head.weight\""});
  all = tensors(true);
  all["model.layers.0.mlp.up_proj.weight"] = counting({8, 12}, 0);
  model.weights(all);
  model.refused({"the shape is [8, 12], but config.json makes it [12, 8]",
                 "model.safetensors \"model.layers.0.mlp.up_proj.weight\""});
  model.weights({});
  model.refused({"this weight is missing", "no tensors at all"});
}

TEST(Checkpoint, NonFiniteWeightsAreRefusedOnRequest) {
  const Model model(false);
  Tensors all = tensors(true);
  all["model.norm.weight"].data.replace(10, 2, bytes_of(uint16_t{0x7F80}));  // element 5: infinity
  model.weights(all);
  const ModelFolder folder = model.open();
  const ParamTable table(folder.arch());
  std::vector<float> out(4);
  folder.read(*table.find("model.norm.weight"), 4, out, NonFinite::accept);
  EXPECT_EQ(out[0], 15.0f);
  expect_error(Status::failed, {"inf at element 5", "\"model.norm.weight\""},
               [&] { folder.read(*table.find("model.norm.weight"), 4, out, NonFinite::refuse); });
}

/// Fetches what a folder holds, as bf16.
FetchParameter from(const ModelFolder& folder) {
  return [&](const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
    std::vector<float> part(out.size() / 2);
    folder.read(spec, first, part, NonFinite::accept);
    for (size_t i = 0; i < part.size(); ++i) {
      const bf16 rounded = to_bf16(part[i]);
      std::memcpy(&out[i * 2], &rounded, 2);
    }
  };
}

/// The stored bytes of every tensor of a safetensors file that the test's own parser of names and offsets
/// finds.
std::string data_of(const std::string& file, const std::string& name) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const size_t at = file.find("\"" + name + "\":");
  EXPECT_LT(at, 8 + length) << name;
  uint64_t begin = 0, end = 0;
  std::sscanf(file.c_str() + file.find("data_offsets", at), "data_offsets\":[%lu,%lu]", &begin, &end);
  return file.substr(8 + length + begin, end - begin);
}

TEST(Checkpoint, SavedWeightsAreTheLoadedOnesUnderTheirNames) {
  const Model model(true);
  Tensors all = tensors(false);
  all["lm_head.weight"] = all["model.embed_tokens.weight"];
  model.weights(all);
  const ModelFolder folder = model.open();
  const TemporaryFolder out;
  const FileSums sums =
      save_weights(out.path(), ParamTable(folder.arch()), DType::bf16, folder.stored_form(), from(folder));
  EXPECT_EQ(out.entries(), 1u);
  const std::string file = out.read("model.safetensors");
  for (const auto& [name, tensor] : all) EXPECT_EQ(data_of(file, name), tensor.data) << name;
  EXPECT_NE(file.find("\"format\":\"pt\""), std::string::npos);
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums.at("model.safetensors"), sum_of(File(out.path("model.safetensors"))));
  save_weights(out.path(), ParamTable(folder.arch()), DType::bf16, {}, from(folder));
  EXPECT_EQ(out.read("model.safetensors").find("lm_head"), std::string::npos);
}

class CheckpointOfGpt2 : public testing::TestWithParam<std::string> {};

TEST_P(CheckpointOfGpt2, IsTransposedOnLoadAndSavedAsItCame) {
  const TemporaryFolder in, out;
  Tensors all = gpt2_tensors(GetParam());
  in.write("config.json", kGpt2);
  Tensors files = all;
  files[GetParam() + "h.0.attn.bias"] = counting({1, 1, 6, 6}, 0);  // buffers of old versions
  files[GetParam() + "h.0.attn.masked_bias"] = counting({1}, 0);
  in.write("model.safetensors", file_of(files));
  const ModelFolder folder(in.path());
  EXPECT_EQ(folder.warnings(), std::vector<std::string>{});
  const ParamTable table(folder.arch());
  const ParamSpec& square = *table.find("transformer.h.0.attn.c_proj.weight");
  const std::vector<float> projection = values(folder, square.name),
                           fused = values(folder, "transformer.h.0.attn.c_attn.weight");
  ASSERT_EQ(fused.size(), 8u * 24u);
  for (size_t o = 0; o < 24; ++o)
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(fused[o * 8 + i], static_cast<float>((5 + i * 24 + o) % 256));
  for (size_t o = 0; o < 8; ++o)
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(projection[o * 8 + i], static_cast<float>(7 + i * 8 + o));
  std::vector<float> part(11);  // from inside one row to inside another
  folder.read(square, 5, part, NonFinite::refuse);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), projection.begin() + 5));
  save_weights(out.path(), table, DType::bf16, folder.stored_form(), from(folder));
  const SafetensorsFile saved(out.path("model.safetensors"));
  EXPECT_EQ(saved.entries().size(), all.size());
  for (const auto& [name, tensor] : all) {
    ASSERT_NE(saved.find(name), nullptr) << name;
    EXPECT_EQ(saved.find(name)->shape, std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end()))
        << name;
    EXPECT_EQ(data_of(out.read("model.safetensors"), name), tensor.data) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, CheckpointOfGpt2, testing::Values("", "transformer."),
                         [](const auto& info) { return info.param.empty() ? "Bare" : "Prefixed"; });

TEST(Checkpoint, SavedShardsStayBelowTheLimitAndTheIndexNamesThem) {
  const Model model(false);
  const Tensors all = tensors(true);
  model.weights(all);
  const ModelFolder folder = model.open();
  const TemporaryFolder out;
  out.write("model.safetensors", "of an older save");
  out.write("model-00009-of-00009.safetensors", "of an older save");
  out.write("config.json", model.folder.read("config.json"));
  const FileSums sums = save_weights(out.path(), ParamTable(folder.arch()), DType::bf16, folder.stored_form(),
                                     from(folder), 200);
  size_t data = 0;
  std::set<std::string> names;
  for (const auto& [name, sum] : sums) {
    EXPECT_EQ(sum, sum_of(File(out.path(name)))) << name;
    if (!name.ends_with(".safetensors")) continue;
    const SafetensorsFile shard(out.path(name));
    uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : shard.entries()) {
      bytes += entry.bytes;
      EXPECT_TRUE(names.insert(entry.name).second);
      EXPECT_EQ(data_of(out.read(name), entry.name), all.at(entry.name).data) << entry.name;
    }
    EXPECT_LE(bytes, 200u) << name;
    data += bytes;
  }
  EXPECT_EQ(names.size(), all.size());
  EXPECT_EQ(out.entries(), sums.size() + 1);  // and config.json: the older save is gone
  EXPECT_NE(out.read("model.safetensors.index.json").find(fmt::format("\"total_size\": {}", data)),
            std::string::npos);
  EXPECT_TRUE(sums.contains("model-00001-of-0000" + std::to_string(sums.size() - 1) + ".safetensors"));
  const ModelFolder back(out.path());
  EXPECT_TRUE(back.warnings().empty());
  for (const auto& [name, tensor] : all) EXPECT_EQ(values(back, name), values(folder, name)) << name;
}

TEST(Checkpoint, TensorAboveTheShardLimitGetsItsOwnShard) {
  const Model model(false);
  model.weights(tensors(true));
  const ModelFolder folder = model.open();
  const TemporaryFolder out;
  const FileSums sums = save_weights(out.path(), ParamTable(folder.arch()), DType::bf16, {}, from(folder), 1);
  EXPECT_EQ(sums.size(), 12u + 1u);  // 12 tensors and the index
}

TEST(Checkpoint, TokenizerFilesAreCopiedByteForByte) {
  const TemporaryFolder from, to;
  const std::string bytes("{\"a\":\r\n \"\xff\0\"}", 14);
  from.write("tokenizer.json", bytes);
  from.write("merges.txt", "");
  from.write("README.md", "no");
  const FileSums sums = copy_files(from.path(), to.path(), kTokenizerFiles);
  EXPECT_EQ(to.read("tokenizer.json"), bytes);
  EXPECT_EQ(to.entries(), 2u);
  EXPECT_EQ(sums.at("tokenizer.json").bytes, 14u);
  EXPECT_EQ(copy_files(from.path(), to.path(), kGenerationConfig).size(), 0u);
  EXPECT_EQ(copy_files(from.path(), from.path(), kTokenizerFiles).size(),
            2u);  // the output folder is the input folder
  EXPECT_EQ(from.read("tokenizer.json"), bytes);
}

}  // namespace
}  // namespace tandem
