// Model folders and token files whose content is wrong, through the program: status 1, the file's name, and
// no run folder.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void expect_failed(const Ran& ran, const std::vector<std::string>& parts, int status = 1) {
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_EQ(ran.out, "");
  for (const std::string& part : parts)
    EXPECT_NE(ran.err.find(part), std::string::npos) << part << "\n" << ran.err;
}

/// Runs, and a sound model folder "model" made by one of them.
class CheckpointFilesProgram : public ::testing::Test {
 protected:
  CheckpointFilesProgram() {
    EXPECT_EQ(runs_.train("made", {}, {"--max-steps", "1", "--quiet"}).status, 0);
    fs::create_directory(model());
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy(checkpoint_path(runs_.path("made"), 1) + "/" + name, model());
  }
  [[nodiscard]] std::string model() const { return runs_.path("model"); }
  [[nodiscard]] std::string weights() const { return model() + "/model.safetensors"; }

  /// Trains from the model folder.
  [[nodiscard]] Ran train_from_model() const {
    return runs_.train("run", {{"model", R"({"path": "model"})"}}, {"--max-steps", "1", "--quiet"});
  }
  void expect_train_and_eval_fail(const std::vector<std::string>& parts) const {
    expect_failed(train_from_model(), parts);
    EXPECT_FALSE(fs::exists(runs_.path("run")));
    expect_failed(
        run_tandem({"eval", "--model", model(), "--data", runs_.path("eval.bin"), "--format", "bytes"}),
        parts);
  }
  TinyRuns runs_;
};

TEST_F(CheckpointFilesProgram, ASoundFolderTrains) { EXPECT_EQ(train_from_model().status, 0); }

TEST_F(CheckpointFilesProgram, AFolderThatIsNotThereIsTheCommandsFault) {
  const Ran ran = runs_.train("run", {{"model", R"({"path": "elsewhere"})"}});
  expect_failed(ran, {"model.path names \"" + runs_.path("elsewhere"), "which does not exist"}, 2);
  expect_failed(run_tandem({"eval", "--model", runs_.path("elsewhere"), "--data", runs_.path("eval.bin")}),
                {"no such folder", "elsewhere"}, 2);
}

TEST_F(CheckpointFilesProgram, WhatIsMistakenForWeightsIsCalledByItsName) {
  const std::vector<std::pair<std::string, std::string>> contents = {
      {"version https://git-lfs.github.com/spec/v1\n", "git-lfs"},
      {"<!DOCTYPE html><p>404", "HTML"},
      {std::string("PK\3\4torch", 9), "zip"},
      {"", "empty"}};
  for (const auto& [bytes, part] : contents) {
    runs_.folder().write("model/model.safetensors", bytes);
    expect_train_and_eval_fail({part, weights()});
  }
  fs::remove(weights());
  fs::create_directory(weights());
  expect_train_and_eval_fail({"folder", weights()});
  fs::remove(weights());
  fs::create_symlink("/nowhere/model.safetensors", weights());
  expect_train_and_eval_fail({"link to \"/nowhere/model.safetensors\"", weights()});
}

TEST_F(CheckpointFilesProgram, WeightsThatAreCutOffOrDoNotFitTheConfig) {
  fs::resize_file(weights(), fs::file_size(weights()) - 1);
  expect_train_and_eval_fail({weights()});
  fs::copy(checkpoint_path(runs_.path("made"), 1) + "/model.safetensors", model(),
           fs::copy_options::overwrite_existing);
  const std::string config = runs_.folder().read("model/config.json");
  const auto with = [&](const std::string& key, json::Value value) {
    json::Value edited = json::parse(config, "config").root;
    edited.set(key, std::move(value));
    runs_.folder().write("model/config.json", json::dump(edited));
  };
  with("hidden_size", 64);
  expect_train_and_eval_fail(
      {"the shape is [256, 32], but config.json makes it [256, 64]", "\"model.embed_tokens.weight\""});
  with("tie_word_embeddings", false);
  expect_train_and_eval_fail({"this weight is missing", "\"lm_head.weight\"", "try: "});
  with("quantization_config", json::Object{{"quant_method", "gptq"}});
  expect_train_and_eval_fail({"quantised (\"gptq\")", "config.json"});
  with("rope_scaling", json::Object{{"rope_type", "longrope"}, {"factor", 2.0}});
  expect_train_and_eval_fail({"rope_type \"longrope\" is not supported", "config.json"});
  runs_.folder().write("model/config.json", "{");
  expect_train_and_eval_fail({"config.json:1:"});
  fs::remove(model() + "/config.json");
  expect_train_and_eval_fail({"no config.json", model()});
}

TEST_F(CheckpointFilesProgram, AnIndexThatNamesWhatIsNotThere) {
  fs::rename(weights(), model() + "/model-00001-of-00002.safetensors");
  const auto index = [&](const std::string& file) {
    runs_.folder().write("model/model.safetensors.index.json",
                         R"({"weight_map": {"model.embed_tokens.weight": ")" + file + "\"}}");
  };
  index("model-00002-of-00002.safetensors");
  expect_train_and_eval_fail({"model-00002-of-00002.safetensors"});
  index("../made.safetensors");
  expect_train_and_eval_fail({"../made.safetensors"});
}

/// Through train and eval with a config whose data.train and --data are the file.
void expect_tokens_refused(const TinyRuns& runs, const std::string& format, const Keys& keys,
                           const std::vector<std::string>& parts) {
  Keys all = keys;
  all["data.train"] = "\"tokens.bin\"";
  all["data.format"] = "\"" + format + "\"";
  all["data.eval"] = "null";
  expect_failed(runs.train("run", all), parts);
  EXPECT_FALSE(fs::exists(runs.path("run")));
  all["data.eval"] = "\"tokens.bin\"";
  expect_failed(
      run_tandem({"eval", runs.config("run", all), "--checkpoint", checkpoint_path(runs.path("made"), 1)}),
      parts);
}

std::string uint16_tokens(const std::vector<uint16_t>& tokens) {
  std::string bytes;
  for (const uint16_t token : tokens) bytes += bytes_of(token);
  return bytes;
}

TEST(TokensProgram, FilesThatHoldNoTokensOfThisModelAreRefusedBeforeARunBegins) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("made", {}, {"--max-steps", "1", "--quiet"}).status, 0);
  const std::string file = runs.path("tokens.bin");
  std::vector<uint16_t> tokens(400, 7);
  tokens[321] = 256;
  runs.folder().write("tokens.bin", uint16_tokens(tokens));
  expect_tokens_refused(runs, "nanogpt", {},
                        {"token 256 at byte 642 (token number 321)", "vocabulary of 256", file});
  expect_tokens_refused(runs, "auto", {}, {"does not say how its tokens are stored", "data.format", file});
  runs.folder().write("tokens.bin", uint16_tokens(tokens).substr(1));
  expect_tokens_refused(runs, "nanogpt", {}, {"799 bytes are no whole number of uint16 tokens", file});
  runs.folder().write("tokens.bin", std::string(16, 'a'));
  expect_tokens_refused(runs, "bytes", {}, {"16", file});
  runs.folder().write("tokens.bin", "");
  expect_tokens_refused(runs, "bytes", {}, {"empty", file});
  runs.folder().write("tokens.bin",
                      bytes_of(int32_t{20240520}) + bytes_of(int32_t{9}) + std::string(2000, '\0'));
  expect_tokens_refused(runs, "llmc", {}, {"version 9", file});
  fs::remove(file);
  fs::create_directory(file);
  expect_tokens_refused(runs, "bytes", {}, {"folder", file});
}

TEST(TokensProgram, AVocabularyThatTheTokensDoNotFit) {
  const TinyRuns runs;
  expect_failed(runs.train("run", {{"model.config.vocab_size", "100"}}),
                {"token ", "is not below the model's vocabulary of 100", runs.path("eval.bin")});
  runs.folder().write("even.bin", std::string(400, '\0'));
  expect_failed(runs.train("run", {{"model.config.vocab_size", "65537"},
                                   {"data.train", "\"even.bin\""},
                                   {"data.eval", "null"},
                                   {"data.format", "\"nanogpt\""}}),
                {"uint16", "65537", runs.path("even.bin")});
  EXPECT_FALSE(fs::exists(runs.path("run")));
}

}  // namespace
}  // namespace tandem
