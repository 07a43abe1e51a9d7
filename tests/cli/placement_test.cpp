// zero_optimization.offload_optimizer.ratio: where each block's optimizer is, which changes no bit.
#include <gtest/gtest.h>

#include "core/io/safetensors_set.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

const std::string kOffload = "zero_optimization.offload_optimizer";

Keys with(const std::string& schedule, const std::string& ratio) {
  Keys keys{{kOffload + ".schedule", '"' + schedule + '"'}};
  if (!ratio.empty()) keys[kOffload + ".ratio"] = ratio;
  return keys;
}

TEST(IdentityPlacement, NoRatioChangesABit) {
  for (const char* schedule : {"exact", "delayed", "synchronous"}) {
    const TinyRuns runs;
    ASSERT_EQ(runs.train("reference", with(schedule, "1")).status, 0);
    const std::string reference = checkpoint_path(runs.path("reference"), 12);
    for (const std::string ratio : {"", "0", "0.5", "0.9"}) {
      const std::string name = "run" + ratio;
      const Ran ran = runs.train(name, with(schedule, ratio));
      ASSERT_EQ(ran.status, 0) << ran.err;
      EXPECT_EQ(computed(runs.path(name)), computed(runs.path("reference")));
      expect_same_checkpoint(checkpoint_path(runs.path(name), 12), reference);
    }
  }
}

TEST(ResumePlacement, GoesOnWithAnotherRatioBitForBit) {
  for (const char* schedule : {"exact", "delayed"})
    for (const char* then : {"1", "0"}) {
      const TinyRuns runs;
      ASSERT_EQ(runs.train("whole", with(schedule, "0.5")).status, 0);
      ASSERT_EQ(runs.train("run", with(schedule, "0.5"), {"--max-steps", "7"}).status, 0);
      const Ran ran = runs.train("run", with(schedule, then), {"--resume", "auto"});
      ASSERT_EQ(ran.status, 0) << ran.err;
      EXPECT_NE(ran.err.find("changed: " + kOffload + ".ratio was 0.5, is " + then), ran.err.npos) << ran.err;
      expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), checkpoint_path(runs.path("whole"), 12));
    }
}

/// States on the device are in fp32, and saved so beside compact ones.
TEST(ResumePlacement, CompactStatesOnTheHostOnly) {
  const TinyRuns runs;
  Keys keys = with("delayed", "0.5");
  keys[kOffload + ".master_format"] = "\"ulp8\"";
  keys[kOffload + ".moment_format"] = "\"int8\"";
  const Ran whole = runs.train("whole", keys);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.err.find("ulp8 masters, int8 moments on the host, fp32 on the device"), whole.err.npos);
  ASSERT_EQ(runs.train("run", keys, {"--max-steps", "7"}).status, 0);
  ASSERT_EQ(runs.train("run", keys, {"--resume", "auto"}).status, 0);
  const std::string saved = checkpoint_path(runs.path("whole"), 12);
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), saved);

  const auto dtype_of = [&](const std::string& stem, const std::string& name) {
    const SafetensorsSet set(saved + "/optimizer", stem);
    const LocatedTensor* tensor = set.find(name);
    return tensor == nullptr ? "none" : tensor->entry->dtype;
  };
  const std::string above = "model.layers.1.mlp.up_proj.weight", below = "model.layers.0.mlp.up_proj.weight";
  EXPECT_EQ(dtype_of("master", below), "F32");
  EXPECT_EQ(dtype_of("master", below + ".low"), "none");
  EXPECT_EQ(dtype_of("exp_avg", below), "F32");
  EXPECT_EQ(dtype_of("master", above), "BF16");
  EXPECT_EQ(dtype_of("master", above + ".low"), "I8");
  EXPECT_EQ(dtype_of("exp_avg_sq", above), "U8");
  EXPECT_EQ(dtype_of("exp_avg_sq", above + ".scale"), "BF16");

  keys["train.steps"] = "14";
  keys[kOffload + ".ratio"] = "1";
  const Ran on = runs.train("run", keys, {"--resume", "auto"});
  EXPECT_EQ(on.status, 0) << on.err;
  EXPECT_EQ(run_tandem({"inspect", checkpoint_path(runs.path("run"), 14)}).status, 0);
  EXPECT_EQ(run_tandem({"export", saved, "--out", runs.path("out"), "--dtype", "float32"}).status, 0);
}

/// Without a ratio `exact` has the embedding's optimizer on the device, unless that lacks a byte.
TEST(MemoryPlacementProgram, TheLimitDecidesWhereTheEmbeddingsOptimizerIs) {
  const TinyRuns runs;
  const std::string config = runs.config("run", with("exact", ""));
  const auto planned = [&](const std::string& limit) {
    std::vector<std::string> arguments{"plan", config};
    if (!limit.empty()) arguments.insert(arguments.end(), {"--set", "device.memory_limit=" + limit});
    const Ran text = run_tandem(arguments);
    EXPECT_EQ(text.status, 0) << text.err;
    arguments.emplace_back("--json");
    const json::Value tier =
        *json::parse(run_tandem(arguments).out, "plan").root.find("tiers")->find("device");
    return std::pair(text.out.find("optimizer of embedding on the device, of 69.4 % of the parameters on the "
                                   "host\n") != text.out.npos,
                     *tier.find("need_bytes")->i64());
  };
  const auto [on_device, bytes] = planned("");
  EXPECT_TRUE(on_device);
  EXPECT_EQ(planned(std::to_string(bytes)), std::pair(true, bytes));
  // Masters, both moments and a slot of 256 rows of 32, less the copy that the slot saves.
  const auto [still, less] = planned(std::to_string(bytes - 1));
  EXPECT_FALSE(still);
  EXPECT_EQ(bytes - less, 256 * 32 * (3 * 4 + 2));
}

TEST(ConfigPlacement, BannerAndPlanSayWhatTheRatioComesTo) {
  const TinyRuns runs;
  // On the device the embedding, 256*32, and the first layer, 9280, of 26784.
  const std::string says =
      "optimizer of embedding and layer 0 on the device, of 34.8 % of the parameters on "
      "the host\n";
  const Ran ran = runs.train("run", with("delayed", "0.5"), {"--dry-run"});
  EXPECT_NE(ran.err.find("correction predict x1; " + says), ran.err.npos) << ran.err;
  const Ran plan = run_tandem({"plan", runs.path("run.json")});
  EXPECT_NE(plan.out.find(says), plan.out.npos) << plan.out;
}

TEST(ConfigPlacement, RefusesWhatIsNoShare) {
  const TinyRuns runs;
  const auto refused = [&](const Keys& keys) {
    const Ran ran = runs.train("run", keys, {"--dry-run"});
    EXPECT_EQ(ran.status, 2);
    return ran.err;
  };
  for (const char* bad : {"-0.1", "1.5", "\"half\"", "true"}) {
    const std::string error = refused(with("exact", bad));
    EXPECT_NE(error.find(kOffload + ".ratio must be a number from 0 to 1, but is " + bad), error.npos)
        << error;
  }
  const std::string none =
      refused({{"zero_optimization", R"({"offload_optimizer": {"device": "none", "ratio": 0.5}})"}});
  for (const std::string& part :
       {kOffload + ".ratio 0.5 is of an optimizer on the host, and nothing is offloaded",
        "try: leave it out, or " + kOffload + ".device \"cpu\""})
    EXPECT_NE(none.find(part), none.npos) << none;
}

}  // namespace
}  // namespace tandem
