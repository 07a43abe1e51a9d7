// What checkpoint.keep_best, checkpoint.states and model.freeze make of a run's checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/io/safetensors_set.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// Step -> eval loss, from metrics.jsonl.
std::map<int64_t, double> eval_losses(const std::string& run) {
  std::map<int64_t, double> losses;
  for (const json::Value& line : metrics_of(run))
    if (line.find("eval") != nullptr)
      losses[line.find("step")->i64().value()] = line.find("eval_loss")->number().value();
  return losses;
}

/// A learning rate that grows until it carries the loss away: the best evaluation is not the last.
const Keys kGettingWorse = {{"checkpoint.every", "2"},
                            {"checkpoint.keep", "1"},
                            {"checkpoint.keep_best", "true"},
                            {"train.eval_every", "2"},
                            {"optimizer.params.lr", "2.0"},
                            {"optimizer.params.weight_decay", "0.0"},
                            {"scheduler.type", "\"WarmupLR\""},
                            {"scheduler.params", R"({"warmup_num_steps": 12, "warmup_type": "linear"})"}};

int64_t best_of(const std::map<int64_t, double>& losses) {
  return std::ranges::min_element(losses, {}, [](const auto& entry) { return entry.second; })->first;
}

Names newest_and(int64_t best) { return {fs::path(checkpoint_path("", best)).filename(), "step-00000012"}; }

TEST(CheckpointBest, StaysBesideTheNewest) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", kGettingWorse).status, 0);
  const auto losses = eval_losses(runs.path("run"));
  EXPECT_EQ(losses.size(), 6u);
  const int64_t best = best_of(losses);
  ASSERT_LT(best, 11) << "the test needs a run that gets worse";
  EXPECT_EQ(names_in(runs.path("run") + "/checkpoints"), newest_and(best));
  EXPECT_TRUE(is_complete(checkpoint_path(runs.path("run"), best)));
}

TEST(CheckpointBest, StaysOverAStopAndAResume) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("whole", kGettingWorse).status, 0);
  const int64_t best = best_of(eval_losses(runs.path("whole")));
  ASSERT_LE(best, 8) << "the test needs a best one before the stop";
  ASSERT_EQ(runs.train("run", kGettingWorse, {"--max-steps", "9"}).status, 0);
  ASSERT_EQ(runs.train("run", kGettingWorse, {"--resume", "auto"}).status, 0);
  EXPECT_EQ(names_in(runs.path("run") + "/checkpoints"), newest_and(best));
}

TEST(CheckpointBest, TheLastOneCountsOnceItHasBeenEvaluated) {
  const TinyRuns runs;
  Keys keys = kGettingWorse;
  keys["optimizer.params.lr"] = "1e-2";  // gets better all the time
  ASSERT_EQ(runs.train("run", keys).status, 0);
  ASSERT_EQ(best_of(eval_losses(runs.path("run"))), 12);
  EXPECT_EQ(names_in(runs.path("run") + "/checkpoints"), Names{"step-00000012"});
}

const Keys kWeightsOnly = {{"checkpoint.states", "false"}, {"checkpoint.every", "5"}};

TEST(CheckpointWithoutStates, HoldsTheModelAndItsHashes) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", kWeightsOnly);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("weights only: the run can't be resumed"), std::string::npos) << ran.err;
  ASSERT_EQ(runs.train("states").status, 0);
  const std::string saved = checkpoint_path(runs.path("run"), 12);
  const auto content = content_of(saved), with_states = content_of(checkpoint_path(runs.path("states"), 12));
  Names names;
  for (const auto& [name, text] : content) names.push_back(name);
  EXPECT_EQ(names, (Names{"config.json", "model.safetensors", "state.json"}));
  EXPECT_EQ(content.at("model.safetensors"), with_states.at("model.safetensors"));
  EXPECT_EQ(run_tandem({"eval", runs.path("run") + ".json", "--checkpoint", "latest"}).status, 0);
  const Ran next = runs.train("next", {{"model", "{\"path\": \"" + saved + "\"}"}});
  EXPECT_EQ(next.status, 0) << next.err;
}

TEST(CheckpointWithoutStates, NoRunGoesOnFromItAndNothingIsLost) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", kWeightsOnly, {"--max-steps", "7"}).status, 0);
  const auto before = content_of(runs.path("run"));
  for (const std::string& from : {std::string("auto"), checkpoint_path(runs.path("run"), 7)}) {
    const Ran ran = runs.train("run", kWeightsOnly, {"--resume", from});
    EXPECT_EQ(ran.status, 1) << ran.err;
    for (const char* part : {"weights only", "step-00000007", "try: a new run with model.path"})
      EXPECT_NE(ran.err.find(part), std::string::npos) << part << "\n" << ran.err;
  }
  EXPECT_EQ(content_of(runs.path("run")), before);
}

/// The tensors of a set and their bytes.
std::map<std::string, std::string> tensors_of(const std::string& folder, const std::string& stem) {
  const SafetensorsSet set(folder, stem);
  std::map<std::string, std::string> tensors;
  for (const auto& [name, tensor] : set.tensors()) {
    std::string bytes(tensor.entry->bytes, '\0');
    tensor.file->read_bytes(*tensor.entry, 0, std::as_writable_bytes(std::span(bytes)));
    tensors[name] = bytes;
  }
  return tensors;
}

const Keys kFrozen = {{"model.freeze", R"(["*embed*", "model.layers.0.*", "*.up_proj.weight"])"},
                      {"zero_optimization.offload_optimizer.schedule", "\"delayed\""},
                      {"checkpoint.every", "1"},
                      {"checkpoint.keep", "99"}};

bool is_frozen(const std::string& name) {
  return name.find("embed") != name.npos || name.starts_with("model.layers.0.") ||
         name.find("up_proj") != name.npos;
}

TEST(CheckpointOfFrozen, HoldsTheirWeightsUnchangedAndNoStates) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", kFrozen);
  ASSERT_EQ(ran.status, 0) << ran.err;
  // 256 x 32 + layer 0 (2 x 32x32 + 2 x 16x32 + 3 x 64x32 + 2 x 32) + 64x32
  EXPECT_NE(ran.err.find("frozen     19520 parameters: model.embed_tokens.weight"), std::string::npos)
      << ran.err;
  const std::string first = checkpoint_path(runs.path("run"), 1),
                    last = checkpoint_path(runs.path("run"), 12);
  const auto before = tensors_of(first, "model"), after = tensors_of(last, "model");
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, bytes] : after) EXPECT_EQ(bytes == before.at(name), is_frozen(name)) << name;
  for (const char* plane : {"master", "exp_avg", "exp_avg_sq", "lagged", "predicted"})
    for (const auto& [name, bytes] : tensors_of(last + "/optimizer", plane))
      EXPECT_FALSE(is_frozen(name)) << plane << " " << name;
}

TEST(CheckpointOfFrozen, ResumesBitForBit) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("whole", kFrozen).status, 0);
  ASSERT_EQ(runs.train("run", kFrozen, {"--max-steps", "7"}).status, 0);
  ASSERT_EQ(runs.train("run", kFrozen, {"--resume", "auto"}).status, 0);
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), checkpoint_path(runs.path("whole"), 12));
}

TEST(CheckpointOfFrozen, ARunThatFreezesOthersDoesNotGoOnFromIt) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", kFrozen, {"--max-steps", "7"}).status, 0);
  for (const char* globs :
       {"[]", "[\"*embed*\"]", "[\"*embed*\", \"model.layers.0.*\", \"*.gate_proj.weight\"]",
        "[\"*embed*\", \"model.layers.*\"]"}) {
    Keys keys = kFrozen;
    keys["model.freeze"] = globs;
    const Ran ran = runs.train("run", keys, {"--resume", "auto"});
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("check model.path, model.config and model.freeze"), std::string::npos) << ran.err;
  }
}

const char* const kGpt2 = R"({"config": {"model_type": "gpt2", "vocab_size": 256, "n_embd": 32, "n_layer": 1,
  "n_head": 4, "n_positions": 32, "n_inner": 48}})";

/// Conv1D: the planes under optimizer/ have the shapes of the model's file, and are what they say.
TEST(CheckpointOfGpt2, KeepsItsStatesInTheOrderOfTheModelFile) {
  const TinyRuns runs;
  const Keys keys = {{"model", kGpt2}, {"bf16.enabled", "false"}};
  ASSERT_EQ(runs.train("run", keys).status, 0);
  const std::string saved = checkpoint_path(runs.path("run"), 12);
  const SafetensorsSet model(saved), master(saved + "/optimizer", "master"),
      moment(saved + "/optimizer", "exp_avg");
  ASSERT_EQ(model.tensors().size(), master.tensors().size());
  for (const auto& [name, tensor] : model.tensors()) {
    EXPECT_EQ(master.find(name)->entry->shape, tensor.entry->shape) << name;
    EXPECT_EQ(moment.find(name)->entry->shape, tensor.entry->shape) << name;
  }
  // In fp32 the weights are the masters.
  EXPECT_EQ(tensors_of(saved, "model"), tensors_of(saved + "/optimizer", "master"));
}

TEST(CheckpointOfGpt2, ResumesBitForBit) {
  const TinyRuns runs;
  const Keys keys = {{"model", kGpt2}, {"zero_optimization.offload_optimizer.schedule", "\"delayed\""}};
  ASSERT_EQ(runs.train("whole", keys).status, 0);
  ASSERT_EQ(runs.train("run", keys, {"--max-steps", "8"}).status, 0);
  ASSERT_EQ(runs.train("run", keys, {"--resume", "auto"}).status, 0);
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), checkpoint_path(runs.path("whole"), 12));
}

}  // namespace
}  // namespace tandem
