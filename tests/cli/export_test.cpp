// tandem export: what comes out is what went in, whole or not at all, and the input is never touched.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cmath>
#include <filesystem>

#include "core/io/safetensors_set.h"
#include "offload/checkpoint_state.h"
#include "tests/cli/model_folders.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// A llama of hidden 8 with vocab 16 and one layer, its head tied.
constexpr const char* kTiny =
    R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,
"num_key_value_heads":1,"vocab_size":16,"torch_dtype":"float32","tie_word_embeddings":true, "note" : "as  it came"})";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : all_files(folder)) names.push_back(name);
  return names;
}

/// "in", a model folder, and whatever lies beside it.
class Folders {
 public:
  Folders() { fs::create_directory(path("in")); }
  Folders(const std::string& config, const StoredTensors& tensors) : Folders() {
    write("in/config.json", config);
    write_tensors(path("in/model.safetensors"), tensors);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }
  void write(const std::string& name, const std::string& bytes) const { folder_.write(name, bytes); }
  [[nodiscard]] std::string read(const std::string& name) const { return folder_.read(name); }
  /// Of "in" to "out".
  [[nodiscard]] Ran run(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"export", path("in"), "--out", path("out")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_tandem(arguments);
  }
  /// Nothing but the input is there, hidden leavings included.
  void expect_only_the_input() const { EXPECT_EQ(folder_.entries(), 1u); }

 private:
  TemporaryFolder folder_;
};

void expect_refused(const Ran& ran, int status, const std::vector<std::string>& parts) {
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_EQ(ran.out, "");
  for (const std::string& part : parts)
    EXPECT_NE(ran.err.find(part), std::string::npos) << part << "\n" << ran.err;
  EXPECT_NE(ran.err.find("try: "), std::string::npos) << ran.err;
}

TEST(CheckpointExport, EveryFamilyComesOutAsItWentIn) {
  const auto configs = golden_configs();
  ASSERT_GE(configs.size(), 10u);
  for (const auto& [name, config] : configs)
    for (const char* access : {"--quiet", "--mmap"}) {
      SCOPED_TRACE(name + access);
      const StoredTensors tensors = random_tensors(config, {"F32", "BF16", "F16", "F64"});
      const Folders folders(config, tensors);
      folders.write("in/generation_config.json", "{ \"eos_token_id\":1 }\r\n");
      folders.write("in/tokenizer.json", std::string("\xff\0{", 3));
      folders.write("in/README.md", "not a file of the model");
      const auto before = all_files(folders.path("in"));
      const Ran ran = folders.run({access});
      ASSERT_EQ(ran.status, 0) << ran.err;
      EXPECT_EQ(ran.err, "note: left out: \"README.md\"\n");
      EXPECT_EQ(tensors_of(folders.path("out")), tensors);
      EXPECT_EQ(names_of(folders.path("out")),
                (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                          "tokenizer.json"}));
      for (const char* file : {"config.json", "generation_config.json", "tokenizer.json"})
        EXPECT_EQ(folders.read(std::string("out/") + file), before.at(file)) << file;
      const SafetensorsSet out(folders.path("out"));
      EXPECT_EQ(out.metadata().at("origin"), "test");
      EXPECT_EQ(all_files(folders.path("in")), before);
    }
}

TEST(CheckpointExport, BareNamesTiedHeadsAndShardsStayAndBuffersGo) {
  const std::string config = golden_configs().at("gpt2");
  StoredTensors tensors;
  for (auto& [name, tensor] : random_tensors(config, {"BF16"}))
    tensors[name.substr(std::string("transformer.").size())] = tensor;  // as in the hub's own gpt2
  tensors["lm_head.weight"] = tensors["wte.weight"];
  const Folders folders;
  folders.write("in/config.json", config);
  StoredTensors first, second;
  std::string map;
  for (const auto& [name, tensor] : tensors) {
    const bool layer = name.starts_with("h.");
    (layer ? first : second)[name] = tensor;
    map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name,
                       layer ? "a.safetensors" : "b.safetensors");
  }
  first["h.0.attn.bias"] = {"U8", {2, 2}, std::string("\1\0\1\1", 4)};
  map += R"(,"h.0.attn.bias":"a.safetensors")";
  write_tensors(folders.path("in/a.safetensors"), first);
  write_tensors(folders.path("in/b.safetensors"), second);
  folders.write("in/model.safetensors.index.json", R"({"weight_map":{)" + map + "}}");
  const Ran ran = folders.run();
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "note: left out: tensors that are no parameters of the model: \"h.0.attn.bias\"\n");
  EXPECT_EQ(tensors_of(folders.path("out")), tensors);
  EXPECT_EQ(names_of(folders.path("out")), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_NE(folders.read("out/config.json").find("\"dtype\": \"bfloat16\""), std::string::npos)
      << "it said float32";
}

TEST(CheckpointExport, AFolderOfLinksIsReadThroughThemAndLeftAlone) {
  const StoredTensors tensors = random_tensors(kTiny, {"F32"});
  const Folders folders;
  fs::create_directory(folders.path("blobs"));
  write_tensors(folders.path("blobs/1a2b"), tensors);
  folders.write("blobs/3c4d", kTiny);
  fs::create_symlink("../blobs/1a2b", folders.path("in/model.safetensors"));
  fs::create_symlink("../blobs/3c4d", folders.path("in/config.json"));
  const auto before = all_files(folders.path("in"));
  ASSERT_EQ(folders.run().status, 0);
  EXPECT_EQ(tensors_of(folders.path("out")), tensors);
  EXPECT_FALSE(fs::is_symlink(folders.path("out/model.safetensors")));
  EXPECT_EQ(folders.read("out/config.json"), kTiny);
  EXPECT_EQ(all_files(folders.path("in")), before);
}

/// 16 x 8 values: those given, then zeros.
StoredTensor embedding(std::vector<float> values) {
  values.resize(16 * 8);
  return f32({16, 8}, values);
}

std::vector<float> floats_of(const StoredTensor& tensor) {
  std::vector<float> values;
  for (size_t i = 0; i < tensor.data.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, &tensor.data[i], 2);
    values.push_back(tensor.dtype == "BF16" ? to_float(bf16{bits}) : to_float(f16{bits}));
  }
  return values;
}

TEST(CheckpointExport, ConvertedWeightsAreRoundedAsWeightsAre) {
  StoredTensors tensors = random_tensors(kTiny, {"F32"});
  for (auto& [name, tensor] : tensors) tensor.data.assign(tensor.data.size(), '\0');
  const float step = std::ldexp(1.0f, -7), half = step / 2;  // bf16 above 1
  tensors[kEmbedding] = embedding({1 + half, -1 - half, 1 + half / 2, 1 + step, 0.1f, 3e38f});
  const Folders folders(kTiny, tensors);
  ASSERT_EQ(folders.run({"--dtype", "bfloat16"}).status, 0);
  const StoredTensors out = tensors_of(folders.path("out"));
  std::vector<float> got = floats_of(out.at(kEmbedding));
  EXPECT_EQ(out.at(kEmbedding).dtype, "BF16");
  EXPECT_EQ(out.at(kEmbedding).shape, (std::vector<uint64_t>{16, 8}));
  // Ties go away from zero. 0.1 = 0x3DCCCCCD: the upper half is 0x3DCC, the rest above half of a step.
  const float tenth = to_float(bf16{0x3DCD});
  EXPECT_EQ(std::vector<float>(got.begin(), got.begin() + 5),
            (std::vector<float>{1 + step, -1 - step, 1, 1 + step, tenth}));
  EXPECT_EQ(folders.read("out/config.json").find("float32"), std::string::npos);
  EXPECT_NE(folders.read("out/config.json").find("\"torch_dtype\":\"bfloat16\""), std::string::npos);
  EXPECT_NE(folders.read("out/config.json").find("\"note\" : \"as  it came\""), std::string::npos);
}

TEST(CheckpointExport, AWeightThatFloat16CantHoldIsRefusedAndNothingIsLeftBehind) {
  StoredTensors tensors = random_tensors(kTiny, {"F32"});
  for (auto& [name, tensor] : tensors) tensor.data.assign(tensor.data.size(), '\0');
  tensors[kEmbedding] = embedding({65504, -65519.99f, 1 + std::ldexp(1.0f, -11)});
  const Folders folders(kTiny, tensors);
  ASSERT_EQ(folders.run({"--dtype", "float16"}).status, 0);
  const std::vector<float> got = floats_of(tensors_of(folders.path("out")).at(kEmbedding));
  EXPECT_EQ(got[0], 65504);
  EXPECT_EQ(got[1], -65504);
  EXPECT_EQ(got[2], 1) << "ties to even";
  fs::remove_all(folders.path("out"));
  tensors[kEmbedding] = embedding({0, 70000});
  write_tensors(folders.path("in/model.safetensors"), tensors);
  expect_refused(
      folders.run({"--dtype", "float16"}), 1,
      {"the weight 70000 has no finite value in F16", "\"model.embed_tokens.weight\"", "bfloat16"});
  folders.expect_only_the_input();
}

class CheckpointExportRun : public ::testing::Test {
 protected:
  [[nodiscard]] Ran export_run(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"export", runs_.path("run"), "--out", runs_.path("out")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_tandem(arguments);
  }
  const TinyRuns runs_;
};

TEST_F(CheckpointExportRun, TheNewestCheckpointBecomesAFolderWithoutStates) {
  ASSERT_EQ(runs_.train("run", {{"checkpoint.every", "4"}}, {"--quiet"}).status, 0);
  const std::string step = checkpoint_path(runs_.path("run"), 12);
  const auto before = all_files(runs_.path("run"));
  const Ran ran = export_run({"--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(tensors_of(runs_.path("out")), tensors_of(step));
  EXPECT_EQ(names_of(runs_.path("out")), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(all_files(runs_.path("run")), before);
  const json::Value result = json::parse(ran.out, "export").root;
  std::vector<std::string> keys;
  for (const json::Member& member : *result.object()) keys.push_back(member.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"out", "bytes", "tensors", "dtype", "source", "step"}));
  EXPECT_EQ(*result.find("out")->string(), runs_.path("out"));
  EXPECT_EQ(*result.find("source")->string(), step);
  EXPECT_EQ(result.find("step")->i64(), 12);
  EXPECT_EQ(*result.find("dtype")->string(), "bfloat16");
  EXPECT_EQ(result.find("tensors")->u64(), tensors_of(step).size());
  EXPECT_EQ(result.find("bytes")->u64(), fs::file_size(runs_.path("out/config.json")) +
                                             fs::file_size(runs_.path("out/model.safetensors")));
}

/// GPT-2's linear weights lie transposed in files, one of them square.
TEST_F(CheckpointExportRun, Float32IsTheMasters) {
  for (
      const char* config :
      {R"({"model_type":"gpt2","n_embd":32,"n_inner":48,"n_layer":1,"n_head":4,"n_positions":16,"vocab_size":256})",
       R"({"model_type":"llama","hidden_size":32,"intermediate_size":64,"num_hidden_layers":1,
            "num_attention_heads":2,"vocab_size":256,"max_position_embeddings":32})"}) {
    for (const char* name : {"run", "out"}) fs::remove_all(runs_.path(name));
    ASSERT_EQ(runs_.train("run", {{"model.config", config}}, {"--quiet"}).status, 0);
    ASSERT_EQ(export_run({"--dtype", "float32"}).status, 0);
    const StoredTensors out = tensors_of(runs_.path("out")),
                        weights = tensors_of(checkpoint_path(runs_.path("run"), 12));
    ASSERT_EQ(out.size(), weights.size());
    size_t finer = 0;
    for (const auto& [name, tensor] : out) {
      SCOPED_TRACE(name);
      EXPECT_EQ(tensor.dtype, "F32");
      EXPECT_EQ(tensor.shape, weights.at(name).shape);
      const std::vector<float> rounded = floats_of(weights.at(name));
      for (size_t i = 0; i < rounded.size(); ++i) {
        float master = 0;
        std::memcpy(&master, &tensor.data[i * 4], 4);
        // Half a step of bf16's 8 bits: a value of another element is farther off almost everywhere.
        ASSERT_NEAR(master, rounded[i], std::ldexp(std::fabs(rounded[i]), -8)) << i;
        finer += master != rounded[i];
      }
    }
    EXPECT_GT(finer, 1000u) << "masters hold more than the 16-bit weights";
    EXPECT_NE(runs_.folder().read("out/config.json").find("float32"), std::string::npos);
  }
}

/// Makes state.json name these files and no others, as a save that wrote these would.
void seal(const std::string& checkpoint, const std::vector<std::string>& files) {
  const json::Document document = json::parse_file(checkpoint + "/state.json");
  const ParsedState parsed = parse_state(json::Node(document));
  FileSums sums;
  for (const std::string& name : files) sums[name] = sum_of(File(checkpoint + "/" + name));
  std::ofstream(checkpoint + "/state.json") << json::dump(render_state(parsed.state, sums));
}

/// A run of the same steps with fp32 masters has the same masters bit by bit.
TEST_F(CheckpointExportRun, Float32OfSplitMastersIsThemToo) {
  const std::string format = "zero_optimization.offload_optimizer.master_format";
  for (const char* masters : {"fp32", "split", "ulp8"}) {
    ASSERT_EQ(runs_.train("run", {{format, '"' + std::string(masters) + '"'}}, {"--quiet"}).status, 0);
    ASSERT_EQ(export_run({"--dtype", "float32"}).status, 0);
    fs::rename(runs_.path("out"), runs_.path(masters));
    fs::remove_all(runs_.path("run"));
  }
  const StoredTensors fp32 = tensors_of(runs_.path("fp32"));
  EXPECT_EQ(tensors_of(runs_.path("split")), fp32);
  for (const auto& [name, tensor] : tensors_of(runs_.path("ulp8"))) {
    ASSERT_EQ(tensor.data.size(), fp32.at(name).data.size());
    size_t finer = 0;
    for (size_t at = 0; at < tensor.data.size(); at += 4) {
      uint32_t bits = 0;
      std::memcpy(&bits, &tensor.data[at], 4);
      ASSERT_EQ(bits & 0xFFu, 0u) << name << ": 8 bits below bf16's are kept";
      finer += (bits & 0xFF00u) != 0;
    }
    if (tensor.shape.size() > 1) {
      EXPECT_GT(finer, tensor.data.size() / 8) << name << " holds more than bf16 does";
    }
  }
}

TEST_F(CheckpointExportRun, WithoutMastersTheWeightsAreConverted) {
  ASSERT_EQ(runs_.train("run", {}, {"--quiet"}).status, 0);
  const std::string step = checkpoint_path(runs_.path("run"), 12);
  fs::remove_all(step + "/optimizer");
  seal(step, {"config.json", "model.safetensors"});
  const Ran ran = export_run({"--dtype", "float32"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("no fp32 masters: its weights are converted"), std::string::npos) << ran.err;
  for (const auto& [name, tensor] : tensors_of(step))
    EXPECT_EQ(tensors_of(runs_.path("out")).at(name), f32(tensor.shape, floats_of(tensor))) << name;
}

TEST_F(CheckpointExportRun, FrozenParametersHaveNoMastersAndAreConverted) {
  ASSERT_EQ(runs_.train("run", {{"model.freeze", R"(["*embed*"])"}}, {"--quiet"}).status, 0);
  ASSERT_EQ(export_run({"--dtype", "float32"}).status, 0);
  const StoredTensor weights = tensors_of(checkpoint_path(runs_.path("run"), 12)).at(kEmbedding);
  EXPECT_EQ(tensors_of(runs_.path("out")).at(kEmbedding), f32(weights.shape, floats_of(weights)));
}

TEST_F(CheckpointExportRun, ADamagedCheckpointIsRefusedAndInARunPassedOver) {
  ASSERT_EQ(runs_.train("run", {{"checkpoint.every", "4"}}, {"--quiet"}).status, 0);
  const std::string newest = checkpoint_path(runs_.path("run"), 12);
  fs::remove(newest + "/config.json");
  fs::resize_file(newest + "/optimizer/exp_avg.safetensors", 100);
  const Ran refused = run_tandem({"export", newest, "--out", runs_.path("out")});
  expect_refused(refused, 1,
                 {"this file of the checkpoint is missing", newest + "/config.json", "the file has 100 bytes",
                  newest + "/optimizer/exp_avg.safetensors", "2 errors", "use an older checkpoint"});
  EXPECT_FALSE(fs::exists(runs_.path("out")));
  const Ran ran = export_run();
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("passed over: " + newest), std::string::npos) << ran.err;
  EXPECT_EQ(tensors_of(runs_.path("out")), tensors_of(checkpoint_path(runs_.path("run"), 8)));
  for (const int step : {4, 8, 12}) fs::remove(checkpoint_path(runs_.path("run"), step) + "/state.json");
  fs::remove_all(runs_.path("out"));
  expect_refused(export_run(), 1, {"the run has no complete checkpoint", runs_.path("run")});
}

TEST(CheckpointExport, PlacesThatCantBeWrittenToAreRefusedAndTheInputIsUnharmed) {
  const Folders folders(kTiny, random_tensors(kTiny, {"BF16"}));
  folders.write("a_file", "x");
  fs::create_directories(folders.path("used/sub"));
  fs::create_symlink(folders.path("in"), folders.path("link"));
  fs::create_symlink("nowhere", folders.path("dangling"));
  const auto before = all_files(folders.path(""));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"in", "--out is the input folder, or lies in it"},
      {"in/", "--out is the input folder"},
      {"used/../in", "--out is the input folder"},
      {"in/new/deep", "or lies in it"},
      {"link", "--out is the input folder"},
      {"link/new", "or lies in it"},
      {"dangling", "a link to something that does not exist"},
      {"used", "--out is not empty"},
      {"a_file", "--out is a file"}};
  for (const auto& [out, message] : cases)
    expect_refused(run_tandem({"export", folders.path("in"), "--out", folders.path(out)}), 2,
                   {message, "--out " + folders.path(out)});
  expect_refused(run_tandem({"export", folders.path("absent"), "--out", folders.path("out")}), 2,
                 {"no such folder", folders.path("absent")});
  expect_refused(run_tandem({"export", folders.path("in")}), 2, {"--out"});
  expect_refused(folders.run({"--dtype", "int8"}), 2, {"unknown dtype \"int8\"", "bfloat16"});
  EXPECT_EQ(all_files(folders.path("")), before);
  EXPECT_FALSE(fs::exists(folders.path("out")));
}

TEST(CheckpointExport, AnEmptyFolderAndALinkToOneAreFilled) {
  const Folders folders(kTiny, random_tensors(kTiny, {"BF16"}));
  fs::create_directory(folders.path("empty"));
  fs::create_symlink("empty", folders.path("out"));
  ASSERT_EQ(folders.run().status, 0);
  EXPECT_TRUE(fs::is_symlink(folders.path("out")));
  EXPECT_EQ(tensors_of(folders.path("empty")), tensors_of(folders.path("in")));
}

TEST(CheckpointExport, WhatIsNoSoundModelIsRefused) {
  const Folders folders(R"({"model_type":"mamba"})", random_tensors(kTiny, {"BF16"}));
  expect_refused(folders.run(), 1, {"mamba", "config.json"});
  StoredTensors fewer = random_tensors(kTiny, {"BF16"});
  fewer.erase("model.norm.weight");
  folders.write("in/config.json", kTiny);
  write_tensors(folders.path("in/model.safetensors"), fewer);
  expect_refused(folders.run(), 1, {"this weight is missing", "\"model.norm.weight\""});
  folders.expect_only_the_input();
}

/// A sparse file: an embedding that no disk here could take.
TEST(CheckpointExport, ADiskThatIsTooSmallIsSeenBeforeAnythingIsWritten) {
  struct statvfs disk {};
  ASSERT_EQ(statvfs(fs::temp_directory_path().c_str(), &disk), 0);
  const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize, row = 4 * 1024,
                 rows = (free + (uint64_t{64} << 30)) / row;
  std::string config = kTiny;
  config.replace(config.find("\"hidden_size\":8"), 15, "\"hidden_size\":1024");
  const StoredTensors tensors = random_tensors(config, {"F32"});
  config.replace(config.find("\"vocab_size\":16"), 15, fmt::format("\"vocab_size\":{}", rows));
  const Folders folders;
  folders.write("in/config.json", config);
  std::string json, data;
  for (const auto& [name, tensor] : tensors)
    if (name != kEmbedding) {
      json += fmt::format("\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", name,
                          tensor.shape.size() == 1 ? std::to_string(tensor.shape[0])
                                                   : fmt::format("{},{}", tensor.shape[0], tensor.shape[1]),
                          data.size(), data.size() + tensor.data.size());
      data += tensor.data;
    }
  json += fmt::format("\"{}\":{{\"dtype\":\"F32\",\"shape\":[{},1024],\"data_offsets\":[{},{}]}}", kEmbedding,
                      rows, data.size(), data.size() + rows * row);
  folders.write("in/model.safetensors", bytes_of(uint64_t{json.size() + 2}) + "{" + json + "}" + data);
  std::error_code error;
  fs::resize_file(folders.path("in/model.safetensors"), 8 + json.size() + 2 + data.size() + rows * row,
                  error);
  if (error) GTEST_SKIP() << "no sparse file of that size here";
  const Ran ran = folders.run();
  expect_refused(ran, 3,
                 {fmt::format("the weights need {} bytes, but ", data.size() + rows * row), "are free"});
  folders.expect_only_the_input();
}

TEST(CheckpointExport, ModesFollowTheUmask) {
  const Folders folders(kTiny, random_tensors(kTiny, {"BF16"}));
  const Ran ran =
      run_tandem({"export", folders.path("in"), "--out", folders.path("out")}, [] { umask(027); });
  ASSERT_EQ(ran.status, 0) << ran.err;
  struct stat info {};
  ASSERT_EQ(stat(folders.path("out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0750u);
  for (const char* file : {"out/config.json", "out/model.safetensors"}) {
    ASSERT_EQ(stat(folders.path(file).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0640u) << file;
  }
}

TEST(MemoryExport, HoldsAFewMiBHoweverLargeTheModelIs) {
  if (kAddressSanitizer) GTEST_SKIP();
  std::string config = kTiny;
  config.replace(config.find("\"vocab_size\":16"), 15, "\"vocab_size\":2000000");
  const Folders small(kTiny, random_tensors(kTiny, {"F32"}));
  StoredTensors tensors = random_tensors(kTiny, {"F32"});
  for (auto& [name, tensor] : tensors) tensor.data.assign(tensor.data.size(), '\0');
  tensors[kEmbedding] = {"F32", {2000000, 8}, std::string(64'000'000, '\0')};
  const Folders large(config, tensors);
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--mmap"}, {"--dtype", "bfloat16"}, {"--dtype", "bfloat16", "--mmap"}}) {
    const size_t least = small.run().peak_bytes;
    const Ran ran = large.run(options);
    ASSERT_EQ(ran.status, 0) << ran.err;
    // A piece of 4 MiB to write, one of 8 MiB as fp32 where it is converted, a window of the map.
    EXPECT_LT(ran.peak_bytes, least + (20u << 20));
    fs::remove_all(large.path("out"));
    fs::remove_all(small.path("out"));
  }
}

}  // namespace
}  // namespace tandem
