// model.mmap and --mmap: the same results, and no more memory than reads.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/model_folders.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// "model": 6.3 million parameters of fp32, 24 MiB, a third of them in the embedding.
class LoadedModel {
 public:
  LoadedModel() {
    const Keys keys = {{"model.config.hidden_size", "256"},
                       {"model.config.intermediate_size", "768"},
                       {"model.config.num_hidden_layers", "5"},
                       {"model.config.num_attention_heads", "4"},
                       {"model.config.num_key_value_heads", "2"},
                       {"model.config.vocab_size", "8192"},
                       {"bf16.enabled", "false"},
                       {"data.eval", "null"}};
    EXPECT_EQ(runs_.train("made", keys, {"--quiet", "--max-steps", "1"}).status, 0);
    fs::rename(checkpoint_path(runs_.path("made"), 1), path("model"));
    fs::remove_all(path("model/optimizer"));
    fs::remove(path("model/state.json"));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return runs_.path(name); }
  /// Two steps from the model.
  [[nodiscard]] Ran train(const std::string& name, bool mmap) const {
    return runs_.train(name,
                       {{"model", fmt::format(R"({{"path": "model", "mmap": {}}})", mmap)},
                        {"bf16.enabled", "false"},
                        {"data.eval", "null"}},
                       {"--quiet", "--max-steps", "2"});
  }
  [[nodiscard]] Ran eval(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"eval",   "--model",           path("model"),
                                          "--data", path("eval.bin"),    "--format",
                                          "bytes",  "--sequence-length", "16"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_tandem(arguments);
  }

 private:
  TinyRuns runs_;
};

TEST(IdentityMmap, TrainingAndEvaluationComputeTheSameAsWithReads) {
  const LoadedModel model;
  ASSERT_EQ(model.train("reads", false).status, 0);
  ASSERT_EQ(model.train("mapped", true).status, 0);
  EXPECT_EQ(computed(model.path("mapped")), computed(model.path("reads")));
  expect_same_checkpoint(checkpoint_path(model.path("mapped"), 2), checkpoint_path(model.path("reads"), 2));
  const Ran reads = model.eval({"--json"}), mapped = model.eval({"--json", "--mmap"});
  ASSERT_EQ(reads.status, 0) << reads.err;
  ASSERT_EQ(mapped.status, 0) << mapped.err;
  const auto loss = [](const Ran& ran) { return json::parse(ran.out, "eval").root.find("loss")->number(); };
  EXPECT_EQ(loss(mapped), loss(reads));
}

TEST(MemoryMmap, LoadingTakesNoMoreThanTheRunWhichReadsTheSame) {
  if (kAddressSanitizer) GTEST_SKIP();
  const LoadedModel model;
  const Ran reads = model.train("reads", false), mapped = model.train("mapped", true);
  ASSERT_EQ(reads.status, 0) << reads.err;
  ASSERT_EQ(mapped.status, 0) << mapped.err;
  // The file has 24 MiB. What the map shows at once is 4 MiB, long before the run's own peak.
  EXPECT_LT(mapped.peak_bytes, reads.peak_bytes + (4u << 20));
}

}  // namespace
}  // namespace tandem
