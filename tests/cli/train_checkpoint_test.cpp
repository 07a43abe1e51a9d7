// What a checkpoint's folder holds.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/io/model_folder.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const std::string& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, text] : content_of(checkpoint)) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

TEST(CheckpointFiles, AreTheDocumentedOnesInEverySchedule) {
  const TinyRuns runs;
  const std::string offload = "zero_optimization.offload_optimizer.";
  const auto files = [&](const std::string& name, const Keys& keys, int64_t step) {
    EXPECT_EQ(runs.train(name, keys, {"--max-steps", std::to_string(step)}).status, 0);
    return names_of(checkpoint_path(runs.path(name), step));
  };
  const Names usual = {"config.json",
                       "model.safetensors",
                       "optimizer/exp_avg.safetensors",
                       "optimizer/exp_avg_sq.safetensors",
                       "optimizer/master.safetensors",
                       "state.json"};
  Names lagged = usual, predicted = usual;
  lagged.insert(lagged.begin() + 4, "optimizer/lagged.safetensors");
  predicted = lagged;
  predicted.insert(predicted.begin() + 6, "optimizer/predicted.safetensors");
  EXPECT_EQ(files("synchronous", {}, 6), usual);
  EXPECT_EQ(files("device", {{"zero_optimization", "{\"stage\": 0}"}}, 6), usual);
  const Keys none = {{offload + "schedule", "\"delayed\""}, {offload + "correction", "\"none\""}};
  EXPECT_EQ(files("none3", none, 3), usual) << "the next step reads the newest weights";
  EXPECT_EQ(files("none4", none, 4), lagged);
  EXPECT_EQ(files("none9", none, 9), lagged);
  const Keys predict = {{offload + "schedule", "\"delayed\""}};
  EXPECT_EQ(files("predict3", predict, 3), usual);
  EXPECT_EQ(files("predict4", predict, 4), predicted);
  EXPECT_EQ(files("predict9", predict, 9), predicted);
}

TEST(CheckpointFiles, StateNamesEverythingThatIsDocumented) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "7"}).status, 0);
  const std::string folder = checkpoint_path(runs.path("run"), 7);
  std::ifstream in(folder + "/state.json");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const json::Document document = json::parse(text, "state.json");
  const json::Node state(document);
  EXPECT_EQ(state.at("format_version").as_i64(), 1);
  EXPECT_EQ(state.at("step").as_i64(), 7);
  EXPECT_EQ(state.at("updates").as_i64(), 7);
  EXPECT_EQ(state.at("sample").as_i64(), 28);
  EXPECT_EQ(state.at("epoch").as_double(), 2.8);
  EXPECT_EQ(state.at("seed").as_i64(), 3);
  EXPECT_EQ(state.at("skipped_in_a_row").as_i64(), 0);
  EXPECT_EQ(state.at("dtype").as_string(), "bfloat16");
  for (const char* key : {"current", "since_step", "zero_until_step"}) (void)state.at("lag").at(key).as_i64();
  for (const char* key : {"scale", "good_steps", "hysteresis_left"})
    (void)state.at("loss_scaler").at(key).as_double();
  EXPECT_TRUE(state.at("staleness").value().is_object());
  for (const json::Node& fact : state.at("pending").items())
    for (const char* key : {"step", "nonfinite", "loss"}) EXPECT_TRUE(fact.find(key)) << key;
  EXPECT_EQ(state.at("master_format").as_string(), "fp32");
  EXPECT_EQ(state.at("moment_format").as_string(), "fp32");
  const json::Node data = state.at("data").at("files").items().at(0);
  EXPECT_EQ(data.at("path").as_string(), runs.path("train.bin"));
  EXPECT_EQ(data.at("bytes").as_i64(), 161);
  EXPECT_EQ(state.at("config_hash").as_string().size(), 16u);
  Names named;
  for (const auto& [name, sum] : state.at("files").members()) {
    EXPECT_EQ(sum.at("bytes").as_u64(), fs::file_size(folder + "/" + std::string(name))) << name;
    EXPECT_EQ(sum.at("xxh3").as_string().size(), 16u);
    named.emplace_back(name);
  }
  named.push_back("state.json");
  EXPECT_EQ(named, names_of(folder)) << "every file, and no other";
}

/// A model folder with odd spacing in its config, a tokenizer and files that are none of Tandem's business.
std::string make_model(const TinyRuns& runs, const std::string& name, const std::string& dtype) {
  EXPECT_EQ(runs.train("seed", {}, {"--max-steps", "1", "--resume", "auto"}).status, 0);
  const std::string from = checkpoint_path(runs.path("seed"), 1), model = runs.path(name);
  fs::create_directories(model);
  fs::copy_file(from + "/model.safetensors", model + "/model.safetensors");
  runs.folder().write(name + "/config.json",
                      "{ \"torch_dtype\":\"" + dtype +
                          "\",\n\t\"model_type\": \"llama\",  \"vocab_size\": 256, \"hidden_size\": 32,\n"
                          "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,\n"
                          "\"num_key_value_heads\": 1, \"max_position_embeddings\": 32,"
                          " \"tie_word_embeddings\": true, \"made_by\" : \"caf\xc3\xa9 \\u00e9\" }");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "merges.txt",
                           "README.md", "training_args.bin", ".gitattributes"})
    runs.folder().write(name + "/" + file, std::string("content of ") + file);
  return model;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(CheckpointFiles, ConfigAndTokenizerComeOutAsTheyWentIn) {
  const TinyRuns runs;
  const std::string model = make_model(runs, "model", "bfloat16");
  const Keys keys = {{"model", "{\"path\": \"" + model + "\"}"}};
  ASSERT_EQ(runs.train("run", keys, {"--max-steps", "2"}).status, 0);
  const std::string saved = checkpoint_path(runs.path("run"), 2);
  for (const char* name :
       {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "merges.txt"})
    EXPECT_EQ(read(saved + "/" + name), read(model + "/" + name)) << name;
  for (const char* name : {"README.md", "training_args.bin", ".gitattributes"})
    EXPECT_FALSE(fs::exists(saved + "/" + name)) << name;

  Keys fp32 = keys;
  fp32["bf16.enabled"] = "false";
  ASSERT_EQ(runs.train("fp32", fp32, {"--max-steps", "2"}).status, 0);
  std::string expected = read(model + "/config.json");
  expected.replace(expected.find("bfloat16"), 8, "float32");
  EXPECT_EQ(read(checkpoint_path(runs.path("fp32"), 2) + "/config.json"), expected)
      << "only the dtype, which would be false";
  const ModelFolder out(checkpoint_path(runs.path("fp32"), 2));
  EXPECT_TRUE(out.warnings().empty());

  Keys other = keys;
  const std::string tokenizer = runs.path("tokenizer");
  fs::create_directory(tokenizer);
  runs.folder().write("tokenizer/tokenizer.json", "another");
  other["model"] = "{\"path\": \"" + model + "\", \"tokenizer\": \"" + tokenizer + "\"}";
  ASSERT_EQ(runs.train("other", other, {"--max-steps", "2"}).status, 0);
  EXPECT_EQ(read(checkpoint_path(runs.path("other"), 2) + "/tokenizer.json"), "another");
  EXPECT_FALSE(fs::exists(checkpoint_path(runs.path("other"), 2) + "/merges.txt"));
}

TEST(CheckpointFiles, AreAModelFolderAgain) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "5"}).status, 0);
  const std::string saved = checkpoint_path(runs.path("run"), 5);
  ASSERT_EQ(runs.train("next", {{"model", "{\"path\": \"" + saved + "\"}"}}).status, 0);
  EXPECT_EQ(read(checkpoint_path(runs.path("next"), 12) + "/config.json"), read(saved + "/config.json"));
}

TEST(CheckpointFiles, ModesFollowTheUmask) {
  const TinyRuns runs;
  for (const mode_t mask : {mode_t{022}, mode_t{077}, mode_t{002}}) {
    const std::string name = "run" + std::to_string(mask);
    ASSERT_EQ(run_tandem({"train", runs.config(name), "--max-steps", "1"}, [mask] { umask(mask); }).status,
              0);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(runs.path(name))) {
      struct stat info {};
      ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, (entry.is_directory() ? 0777 : 0666) & ~mask) << entry.path();
    }
  }
}

/// A run that is good for 2 steps and then gets a learning rate that carries the weights away.
class CheckpointNonFinite : public testing::Test {
 protected:
  Ran carried_away(Keys keys, const char* lr) {
    keys["optimizer.params.betas"] = "[0.0, 0.95]";  // an update is at most lr
    keys["scheduler.type"] = "\"constant\"";
    keys["scheduler.params"] = "{}";
    keys["checkpoint.keep"] = "1";
    EXPECT_EQ(runs_.train("run", keys, {"--max-steps", "2"}).status, 0);
    before_ = content_of(checkpoint_path(runs_.path("run"), 2));
    keys["optimizer.params.lr"] = lr;
    keys["optimizer.params.weight_decay"] = "0.0";
    return runs_.train("run", keys, {"--resume", "auto"});
  }
  void expect_kept(const Ran& ran, const char* reason) {
    EXPECT_EQ(ran.status, 1) << ran.err;
    const std::string saved = checkpoint_path(runs_.path("run"), 2);
    for (const std::string& part : {std::string(reason), std::string("  at: model."), std::string("  try: "),
                                    "the newest complete checkpoint is " + saved})
      EXPECT_NE(ran.err.find(part), std::string::npos) << part << "\n" << ran.err;
    EXPECT_EQ(names_in(runs_.path("run") + "/checkpoints"), Names{"step-00000002"});
    EXPECT_EQ(content_of(saved), before_);
  }
  TinyRuns runs_;
  std::map<std::string, std::string> before_;
};

const char* const kNotWritten = "error: a weight is not finite: the checkpoint is not written";

TEST_F(CheckpointNonFinite, MastersAreNotWritten) {
  expect_kept(carried_away({{"checkpoint.every", "1"}, {"bf16.enabled", "false"}}, "1e39"), kNotWritten);
}

TEST_F(CheckpointNonFinite, WeightsThatOnlyRoundingMakesInfiniteAreNotWritten) {
  // Above the largest fp16, 65504, and far below the largest fp32.
  expect_kept(
      carried_away({{"checkpoint.every", "1"}, {"bf16.enabled", "false"}, {"fp16.enabled", "true"}}, "1e6"),
      kNotWritten);
}

TEST_F(CheckpointNonFinite, AStopNamesTheTensorAndTheLastGoodCheckpoint) {
  expect_kept(carried_away({{"train.max_skipped_in_a_row", "3"}}, "1e38"),
              "error: 3 steps in a row had a gradient that is not finite");
}

TEST(CheckpointInput, IsNeverHarmedByARunInItsOwnFolder) {
  const TinyRuns runs;
  const std::string model = make_model(runs, "model", "bfloat16");
  const auto before = content_of(model);
  fs::create_directory_symlink(model, runs.path("link"));
  const Keys keys = {{"model", "{\"path\": \"" + model + "\"}"},
                     {"checkpoint.every", "2"},
                     {"checkpoint.keep", "1"},
                     {"output_dir", '"' + runs.path("link") + '"'}};
  ASSERT_EQ(runs.train("config", keys).status, 0);
  const auto after = content_of(model);
  for (const auto& [name, text] : before) EXPECT_EQ(after.at(name), text) << name;
  EXPECT_TRUE(is_complete(checkpoint_path(model, 12)));
}

TEST(CheckpointInput, MayNotLieAmongTheCheckpointsThatComeAndGo) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "5"}).status, 0);
  const std::string saved = checkpoint_path(runs.path("run"), 5);
  fs::create_directory_symlink(saved, runs.path("link"));
  for (const std::string& path : {saved, runs.path("link")}) {
    const Ran ran = runs.train("run", {{"model", "{\"path\": \"" + path + "\"}"}}, {"--resume", "auto"});
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("model.path lies among the checkpoints of this run"), std::string::npos)
        << ran.err;
  }
  EXPECT_TRUE(is_complete(saved));
}

TEST(CheckpointFiles, LinksInTheirPlaceAreReplacedNotFollowed) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "3"}).status, 0);
  const std::string precious = runs.folder().write("precious.json", "precious");
  fs::create_symlink(precious, runs.path("run") + "/.config.resolved.json.tmp");
  fs::remove(runs.path("run") + "/config.resolved.json");
  fs::create_symlink(precious, runs.path("run") + "/config.resolved.json");
  EXPECT_NE(runs.train("run", {}, {"--resume", "auto"}).status, 0) << "the config of the run is not one";
  fs::remove(runs.path("run") + "/config.resolved.json");
  fs::create_directory_symlink(runs.path(""), checkpoint_path(runs.path("run"), 12));
  ASSERT_EQ(runs.train("run", {}, {"--resume", checkpoint_path(runs.path("run"), 3)}).status, 0);
  EXPECT_EQ(read(precious), "precious");
  EXPECT_TRUE(is_complete(checkpoint_path(runs.path("run"), 12)));
  EXPECT_FALSE(fs::is_symlink(checkpoint_path(runs.path("run"), 12)));
}

}  // namespace
}  // namespace tandem
