// What may change between a run and its resumption, and which checkpoint is taken.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/io/safetensors_set.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// A run that has been stopped after 6 of its 12 steps.
class ResumeChanged : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(runs_.train("run", {}, {"--max-steps", "6"}).status, 0); }
  Ran resume(const Keys& keys, std::vector<std::string> options = {}) {
    options.insert(options.end(), {"--resume", "auto"});
    return runs_.train("run", keys, options);
  }
  void expect_refused(const Keys& keys, std::initializer_list<const char*> parts) {
    const auto before = metrics_of(runs_.path("run"));
    const Ran ran = resume(keys);
    EXPECT_EQ(ran.status, 2) << ran.err;
    for (const char* part : parts) EXPECT_TRUE(has(ran.err, part)) << part << "\n" << ran.err;
    EXPECT_TRUE(has(ran.err, "  try: ")) << ran.err;
    EXPECT_EQ(metrics_of(runs_.path("run")), before);
    EXPECT_EQ(names_in(runs_.path("run") + "/checkpoints"), std::vector<std::string>{"step-00000006"});
  }
  TinyRuns runs_;
};

/// The numbers of a safetensors file of fp32.
std::vector<float> floats_of(const std::string& checkpoint, const char* stem) {
  const SafetensorsSet set(checkpoint + "/optimizer", stem);
  std::vector<float> all;
  for (const auto& [name, tensor] : set.tensors()) {
    std::vector<std::byte> bytes(tensor.entry->bytes);
    tensor.file->read_bytes(*tensor.entry, 0, bytes);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_F(ResumeChanged, AnotherMicroBatchOfTheSameBatchSeesTheSameData) {
  // In fp32, so that rounding stays small: sums in another order differ by a few ulps, and Adam's m/sqrt(v)
  // passes relative errors of the gradient on; at most lr = 1e-2 a step.
  const Keys fp32 = {{"bf16.enabled", "false"}};
  Keys other = fp32;
  other["train_micro_batch_size_per_gpu"] = "4";
  other["gradient_accumulation_steps"] = "1";
  ASSERT_EQ(runs_.train("whole", fp32).status, 0);
  ASSERT_EQ(runs_.train("half", fp32, {"--max-steps", "6"}).status, 0);
  const Ran ran = runs_.train("half", other, {"--resume", "auto"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(has(ran.err, "changed: train_micro_batch_size_per_gpu was 2, is 4 (the new value counts)"))
      << ran.err;
  EXPECT_TRUE(has(ran.err, "changed: gradient_accumulation_steps was 2, is 1")) << ran.err;
  const auto whole = metrics_of(runs_.path("whole")), half = metrics_of(runs_.path("half"));
  ASSERT_EQ(whole.size(), half.size());
  for (size_t i = 0; i + 1 < whole.size(); ++i)  // other data would differ by 0.01 and more
    EXPECT_NEAR(*whole[i].find("loss")->number(), *half[i].find("loss")->number(), 1e-5) << i;
  const std::string a = checkpoint_path(runs_.path("whole"), 12), b = checkpoint_path(runs_.path("half"), 12);
  const std::vector<float> masters = floats_of(a, "master"), others = floats_of(b, "master");
  ASSERT_EQ(masters.size(), others.size());
  double squares = 0, differences = 0;
  for (size_t i = 0; i < masters.size(); ++i) {
    squares += masters[i] * masters[i];
    differences += (masters[i] - others[i]) * (masters[i] - others[i]);
  }
  EXPECT_LT(std::sqrt(differences / squares), 1e-4);
  EXPECT_EQ(json::parse(content_of(a).at("state.json"), "a").root.find("sample")->i64(),
            json::parse(content_of(b).at("state.json"), "b").root.find("sample")->i64());
}

TEST_F(ResumeChanged, ListsWhatDiffersAndTheNewValueCounts) {
  const Ran ran = resume({{"gradient_clipping", "0.5"}, {"optimizer.params.lr", "5e-3"}});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(has(ran.err, "changed: gradient_clipping was 1.0, is 0.5 (the new value counts)")) << ran.err;
  EXPECT_TRUE(has(ran.err, "changed: optimizer.params.lr was 0.01, is 0.005")) << ran.err;
  EXPECT_FALSE(has(ran.err, "changed: train.")) << ran.err;
  const auto lines = metrics_of(runs_.path("run"));
  EXPECT_LT(*lines[6].find("lr")->number(), 0.6 * *lines[5].find("lr")->number());
  // The config that counted is what the next resumption compares with.
  EXPECT_TRUE(has(resume({}).err, "changed: gradient_clipping was 0.5, is 1.0"));
}

TEST_F(ResumeChanged, SeedAndDataBindUnlessNamed) {
  expect_refused({{"train.seed", "4"}},
                 {"train.seed was 3 in the run that is resumed and is 4 now", "--set"});
  expect_refused({{"data.shuffle", "false"}}, {"data.shuffle was true"});
  expect_refused({{"data.sequence_length", "8"}}, {"data.sequence_length was 16"});
  expect_refused({{"data.train", "\"eval.bin\""}}, {"data.train", "train.bin", "eval.bin"});
  EXPECT_EQ(resume({{"train.seed", "4"}}, {"--set", "train.seed=4"}).status, 0);
}

TEST_F(ResumeChanged, ADataFileWithOtherBytesIsNoticed) {
  std::string bytes = runs_.folder().read("train.bin");
  bytes[7] ^= 1;
  runs_.folder().write("train.bin", bytes);
  expect_refused({}, {"the data file is not the one", "train.bin", "--set data.train"});
  EXPECT_EQ(resume({}, {"--set", "data.train=" + runs_.path("train.bin")}).status, 0);
}

TEST_F(ResumeChanged, AnotherModelIsRefusedAndNeverAFreshStart) {
  expect_refused({{"model.config.hidden_size", "64"}}, {"model.config.hidden_size was 32", "is 64 now"});
  expect_refused({{"model.config.rms_norm_eps", "1e-4"}}, {"model.config.rms_norm_eps"});
  // Named, it is still no model for these masters.
  const Ran ran = resume({{"model.config.hidden_size", "64"}}, {"--set", "model.config.hidden_size=64"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_TRUE(has(ran.err, "for this parameter")) << ran.err;
  EXPECT_EQ(computed(runs_.path("run")).size(), 6u);
  EXPECT_EQ(
      resume({{"model.config.rms_norm_eps", "1e-4"}}, {"--set", "model.config.rms_norm_eps=1e-4"}).status, 0);
}

TEST_F(ResumeChanged, AModelFolderThatChangedBehindTheConfigIsNoticed) {
  const std::string model = runs_.path("model");
  fs::copy(checkpoint_path(runs_.path("run"), 6), model);
  const Keys keys = {{"model", "{\"path\": \"" + model + "\"}"}};
  ASSERT_EQ(runs_.train("second", keys, {"--max-steps", "2"}).status, 0);
  std::string text = runs_.folder().read("model/config.json");
  text.insert(text.find('{') + 1, "\"rope_theta\": 500.0, ");
  runs_.folder().write("model/config.json", text);
  const Ran ran = runs_.train("second", keys, {"--resume", "auto"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_TRUE(has(ran.err, "the model's rope_theta was 10000.0 in the run that is resumed and is 500.0 now"))
      << ran.err;
}

TEST_F(ResumeChanged, AnotherDtypeIsRefused) {
  expect_refused({{"bf16.enabled", "false"}}, {"the checkpoint trains in bfloat16, the config in float32",
                                               "start a new run with model.path set to this checkpoint"});
}

TEST_F(ResumeChanged, AnotherScheduleMayBeTaken) {
  const std::string key = "zero_optimization.offload_optimizer.";
  const Keys delayed = {{key + "schedule", "\"delayed\""}, {key + "warmup_steps", "0"}};
  ASSERT_EQ(runs_.train("run", delayed, {"--resume", "auto", "--max-steps", "9"}).status, 0);
  const auto lines = metrics_of(runs_.path("run"));
  const auto lag = [&](size_t step) { return *lines[step - 1].find("version_lag")->i64(); };
  EXPECT_EQ(lag(7), 0) << "there are no older weights to read";
  EXPECT_EQ(lag(8), 1);
  ASSERT_EQ(resume({}).status, 0);
  EXPECT_EQ(*metrics_of(runs_.path("run"))[9].find("version_lag")->i64(), 0);
}

class ResumeBroken : public testing::Test {
 protected:
  void SetUp() override {
    const Keys keys = {{"checkpoint.every", "3"}, {"checkpoint.keep", "3"}};
    ASSERT_EQ(runs_.train("run", keys, {"--max-steps", "9"}).status, 0);
    newest_ = checkpoint_path(runs_.path("run"), 9);
  }
  void expect_skipped(const char* why) {
    const Ran ran = runs_.train("run", {}, {"--resume", newest_});
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_TRUE(has(ran.err, why)) << ran.err;
    const Ran quiet = runs_.train("run", {}, {"--resume", "auto", "--max-steps", "7", "--quiet"});
    ASSERT_EQ(quiet.status, 0) << quiet.err;
    EXPECT_TRUE(has(quiet.err, "warning: skipped the checkpoint of step 9: ")) << quiet.err;
    EXPECT_TRUE(has(quiet.err, why)) << quiet.err;
    EXPECT_EQ(names_in(runs_.path("run") + "/checkpoints"),
              (std::vector<std::string>{"step-00000006", "step-00000007"}))
        << "the broken one is gone, the default keeps two";
  }
  TinyRuns runs_;
  std::string newest_;
};

TEST_F(ResumeBroken, WithoutStateItIsIncomplete) {
  fs::remove(newest_ + "/state.json");
  expect_skipped("the checkpoint is incomplete: it has no state.json");
}

TEST_F(ResumeBroken, WithoutAFileItIsIncomplete) {
  fs::remove(newest_ + "/optimizer/exp_avg.safetensors");
  expect_skipped("exp_avg.safetensors");
}

TEST_F(ResumeBroken, ATruncatedFileIsNoticed) {
  fs::resize_file(newest_ + "/model.safetensors", fs::file_size(newest_ + "/model.safetensors") - 1);
  expect_skipped("bytes where the checkpoint wrote");
}

TEST_F(ResumeBroken, AFlippedBitIsNoticedInEveryFile) {
  const std::vector<std::string> names = {"model.safetensors", "config.json", "optimizer/master.safetensors",
                                          "optimizer/exp_avg_sq.safetensors"};
  for (const std::string& name : names) {
    std::fstream file(newest_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(newest_ + "/" + name) / 2);
    const auto flip = [&] {
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 4));
      file.flush();
    };
    flip();
    EXPECT_FALSE(is_complete(newest_)) << name;
    flip();
    EXPECT_TRUE(is_complete(newest_)) << name;
    if (name == names.back()) flip();
  }
  expect_skipped("the file's content is not what the checkpoint wrote");
}

/// Whoever reads a checkpoint as a model, without its states.
TEST_F(ResumeBroken, AFlippedBitOfTheModelIsNoticedByAllItsReaders) {
  const std::string config = runs_.path("run.json");
  std::fstream file(newest_ + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-3, std::ios::end);
  file.put('x');
  file.close();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", config, "--checkpoint", "latest"},
        {"eval", "--model", newest_, "--data", runs_.path("eval.bin"), "--format", "bytes",
         "--sequence-length", "16"},
        {"export", newest_, "--out", runs_.path("out")},
        {"train", runs_.config("next", {{"model", "{\"path\": \"" + newest_ + "\"}"}})}}) {
    const Ran ran = run_tandem(command);
    EXPECT_EQ(ran.status, 1) << command[0] << ran.err;
    EXPECT_TRUE(has(ran.err, "the file's content is not what the checkpoint wrote")) << command[0] << ran.err;
  }
}

TEST_F(ResumeBroken, TheStatesAreNoneOfTheModelsReadersBusiness) {
  fs::remove_all(newest_ + "/optimizer");
  EXPECT_EQ(run_tandem({"eval", runs_.path("run.json"), "--checkpoint", "latest"}).status, 0);
  EXPECT_EQ(runs_.train("next", {{"model", "{\"path\": \"" + newest_ + "\"}"}}).status, 0);
}

TEST_F(ResumeBroken, AChangedDigitOfTheStateIsNoticed) {
  std::ifstream in(newest_ + "/state.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const size_t at = text.find("\"sample\": 36");
  ASSERT_NE(at, text.npos);
  text[at + 10] = '4';
  std::ofstream(newest_ + "/state.json") << text;
  expect_skipped("is not the hash of this state");
}

TEST_F(ResumeBroken, WhereAllAreBrokenTheRunStartsAfresh) {
  for (const int64_t step : {3, 6, 9}) fs::remove(checkpoint_path(runs_.path("run"), step) + "/state.json");
  ASSERT_EQ(runs_.train("run", {}, {"--resume", "auto"}).status, 0);
  ASSERT_EQ(runs_.train("whole").status, 0);
  EXPECT_EQ(computed(runs_.path("run")), computed(runs_.path("whole")));
  EXPECT_EQ(names_in(runs_.path("run") + "/checkpoints"), std::vector<std::string>{"step-00000012"});
}

TEST_F(ResumeBroken, APathThatIsNotThereIsAFaultOfTheCommandLine) {
  const Ran ran = runs_.train("run", {}, {"--resume", runs_.path("nowhere")});
  EXPECT_EQ(ran.status, 2);
  EXPECT_TRUE(has(ran.err, "there is no checkpoint")) << ran.err;
}

}  // namespace
}  // namespace tandem
