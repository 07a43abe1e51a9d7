// master_format and moment_format: what a run says, saves and goes on from.
#include <gtest/gtest.h>

#include "core/io/safetensors_set.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

const std::string kOffload = "zero_optimization.offload_optimizer.";

struct Formats {
  std::string masters, moments;
};

Keys with_formats(const Formats& formats) {
  return {{kOffload + "master_format", '"' + formats.masters + '"'},
          {kOffload + "moment_format", '"' + formats.moments + '"'},
          {kOffload + "schedule", "\"delayed\""}};
}

/// name -> "DTYPE [shape]"
std::map<std::string, std::string> layout_of(const std::string& folder, const std::string& stem) {
  const SafetensorsSet set(folder, stem);
  std::map<std::string, std::string> layout;
  for (const auto& [name, tensor] : set.tensors())
    layout[name] = tensor.entry->dtype + " " + shape_text(tensor.entry->shape);
  return layout;
}

class CheckpointStates : public testing::TestWithParam<Formats> {};

TEST_P(CheckpointStates, AreSavedAsTheyAreHeldAndResumedBitForBit) {
  const TinyRuns runs;
  const Keys keys = with_formats(GetParam());
  const Ran whole = runs.train("whole", keys);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.err.find(GetParam().masters + " masters, " + GetParam().moments + " moments"),
            std::string::npos)
      << whole.err;
  ASSERT_EQ(runs.train("run", keys, {"--max-steps", "7"}).status, 0);
  ASSERT_EQ(runs.train("run", keys, {"--resume", "auto"}).status, 0);
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
  const std::string saved = checkpoint_path(runs.path("whole"), 12);
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), saved);

  const std::string& masters = GetParam().masters;
  const bool int8 = GetParam().moments == "int8", bf16 = GetParam().moments == "bf16";
  const auto master = layout_of(saved + "/optimizer", "master"),
             first = layout_of(saved + "/optimizer", "exp_avg"),
             second = layout_of(saved + "/optimizer", "exp_avg_sq");
  const std::string up = "model.layers.0.mlp.up_proj.weight", shape = " [64, 32]";
  EXPECT_EQ(master.at(up), (masters == "fp32" ? "F32" : "BF16") + shape);
  EXPECT_EQ(master.contains(up + ".low"), masters != "fp32");
  if (masters != "fp32") {
    EXPECT_EQ(master.at(up + ".low"), (masters == "split" ? "U16" : "I8") + shape);
  }
  EXPECT_EQ(first.at(up), (int8 ? "I8" : bf16 ? "BF16" : "F32") + shape);
  EXPECT_EQ(second.at(up), (int8 ? "U8" : bf16 ? "BF16" : "F32") + shape);
  EXPECT_EQ(first.contains(up + ".scale"), int8);
  if (!int8) return;
  EXPECT_EQ(first.at(up + ".scale"), "BF16 [64]");
  EXPECT_EQ(second.at("model.norm.weight.scale"), "BF16 [1]");
}

TEST_P(CheckpointStates, OfGpt2LieInTheOrderOfItsFiles) {
  const TinyRuns runs;
  Keys keys = with_formats(GetParam());
  keys["model"] =
      R"({"config": {"model_type": "gpt2", "vocab_size": 256, "n_embd": 32, "n_layer": 1, "n_head": 4,
                     "n_positions": 32, "n_inner": 48}})";
  ASSERT_EQ(runs.train("whole", keys).status, 0);
  ASSERT_EQ(runs.train("run", keys, {"--max-steps", "5"}).status, 0);
  ASSERT_EQ(runs.train("run", keys, {"--resume", "auto"}).status, 0);
  const std::string saved = checkpoint_path(runs.path("whole"), 12);
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), saved);
  EXPECT_TRUE(
      layout_of(saved + "/optimizer", "exp_avg").at("transformer.h.0.mlp.c_fc.weight").ends_with("[32, 48]"));
}

TEST_P(CheckpointStates, ARunMayGoOnInAnotherFormatWhichIsSaid) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", with_formats({"fp32", "fp32"}), {"--max-steps", "5"}).status, 0);
  const Ran there = runs.train("run", with_formats(GetParam()), {"--resume", "auto", "--max-steps", "8"});
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_NE(there.err.find("changed: " + kOffload), std::string::npos) << there.err;
  const Ran back = runs.train("run", with_formats({"fp32", "fp32"}), {"--resume", "auto"});
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_TRUE(is_complete(checkpoint_path(runs.path("run"), 12)));
}

INSTANTIATE_TEST_SUITE_P(Formats, CheckpointStates,
                         testing::Values(Formats{"fp32", "bf16"}, Formats{"fp32", "int8"},
                                         Formats{"split", "fp32"}, Formats{"ulp8", "int8"}),
                         [](const auto& info) { return info.param.masters + "_" + info.param.moments; });

TEST(ConfigStates, CompactOnesNeedAnOptimizerOnTheHost) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", {{"zero_optimization", "{\"stage\": 0}"}},
                             {"--set", kOffload + "moment_format=int8", "--set", kOffload + "device=none"});
  EXPECT_EQ(ran.status, 2);
  for (const char* part : {"moment_format \"int8\" is of an optimizer on the host", "try: \"fp32\""})
    EXPECT_NE(ran.err.find(part), std::string::npos) << ran.err;
}

TEST(ConfigStates, MastersBesideWeightsNeedBf16) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", {{"bf16.enabled", "false"}}, {"--set", kOffload + "master_format=split"});
  EXPECT_EQ(ran.status, 2);
  for (const char* part :
       {"master_format \"split\" keeps the lower half of each fp32 master beside its bfloat16",
        "try: \"fp32\", or bf16.enabled true"})
    EXPECT_NE(ran.err.find(part), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace tandem
