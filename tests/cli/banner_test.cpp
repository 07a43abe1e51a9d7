// The start banner and --dry-run: what a run says before it begins.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "gpu/cuda_probe.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void expect_says(const Ran& ran, const std::vector<std::string>& parts) {
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const std::string& part : parts) EXPECT_EQ(occurrences(ran.err, part), 1u) << part << "\n" << ran.err;
}

TEST(ConfigBanner, SaysWhatARunIsAboutToDoAndWritesNothing) {
  const TinyRuns runs;
  const Ran ran = runs.train("run",
                             {{"train.steps", "6"},
                              {"optimizer.params.no_decay", R"(["*.mlp.*"])"},
                              {"zero_optimization.offload_optimizer.schedule", "\"delayed\""},
                              {"zero_optimization.overlap_comm", "true"},
                              {"wall_clock_breakdown", "true"},
                              {"device.kind", "\"auto\""}},
                             {"--dry-run"});
  EXPECT_EQ(ran.out, "");
  EXPECT_FALSE(std::filesystem::exists(runs.path("run")));
  expect_says(
      ran, {"device     host (auto: no CUDA device (" + gpu::probe_cuda().why + "))", "cpu        1 threads",
            // 256*32 embedding, 2 layers of 2*32*32 + 2*16*32 + 3*64*32 + 2*32, final norm 32.
            "26784 parameters in 4 blocks", "tied head; weights from train.seed", "bfloat16 weights",
            "delayed, lag 0 for 4 steps, then 1; correction predict x1; optimizer on the host",
            "4 sequences of 16 tokens = micro-batch 2 x accumulation 2 x 1 rank; 6 steps",
            "10 samples an epoch, 2.40 epochs; 7 samples for evaluation",
            // Warm-up to 1e-2 in 3 updates, then half a cosine from 3 to 6: at update 6 (n = 5) cos(2 pi/3) =
            // -1/2, 1e-4 + (1 - 1e-4) / 4 of the peak.
            "first 0.00333, peak 0.01 (update 3), last 0.0025", "clip       1 (global norm)",
            "0.1 decoupled (AdamW)", "no effect  zero_optimization.overlap_comm, wall_clock_breakdown",
            // 3 fp32 planes and 3 of bf16: weights, lagged, predicted.
            "saves      470.81 KiB each, at the end, the newest 2 kept; ", "memory     device ",
            "pinned): ", "fixed "});
  const size_t decay = ran.err.find("decay      "), none = ran.err.find("no decay   ");
  ASSERT_TRUE(decay != ran.err.npos && none != ran.err.npos);
  EXPECT_NE(ran.err.substr(decay, none - decay).find("model.layers.*.self_attn.q_proj.weight"), ran.err.npos);
  EXPECT_EQ(ran.err.substr(decay, none - decay).find("mlp"), ran.err.npos);
  EXPECT_NE(ran.err.substr(none).find("model.layers.*.mlp.up_proj.weight"), ran.err.npos);
}

/// The resolved config keeps "auto"; what it came to is said, by the plan, too.
TEST(ConfigBanner, SaysWhatAutoChose) {
  const TinyRuns runs;
  const std::string policy = "activation_checkpointing.policy";
  expect_says(runs.train("auto", {}, {"--dry-run"}), {"activation keep (chosen by auto)\n"});
  expect_says(runs.train("given", {{policy, "\"recompute\""}}, {"--dry-run"}), {"activation recompute\n"});
  const Keys tight{{"device.memory_limit", "\"350KiB\""}};
  expect_says(runs.train("tight", tight, {}), {"activation recompute (chosen by auto)\n"});
  expect_says(runs.train("wide", {}, {"--quiet"}), {});
  expect_same_checkpoint(checkpoint_path(runs.path("tight"), 12), checkpoint_path(runs.path("wide"), 12));
  EXPECT_EQ(*json::parse_file(runs.path("tight/config.resolved.json"))
                 .root.find("activation_checkpointing")
                 ->find("policy"),
            json::Value("auto"));
  const Ran plan = run_tandem({"plan", runs.path("tight.json")});
  EXPECT_NE(plan.out.find("choice  activations recompute (chosen by auto); optimizer on the host\n"),
            plan.out.npos)
      << plan.out;
}

TEST(ConfigBanner, SaysWhenUpdatesBegin) {
  const TinyRuns runs;
  const std::string offload = "zero_optimization.offload_optimizer";
  const Keys usual = {{offload, R"({"device": "cpu"})"}};
  Keys early = usual, limited = usual;
  early["gradient_clipping"] = "0";
  early["train.on_nonfinite"] = "\"stop\"";
  limited[offload] = R"({"schedule": "delayed", "warmup_steps": 5, "staleness_limit": 0.25})";
  expect_says(
      runs.train("usual", usual, {"--dry-run"}),
      {"exact, lag 0, updates begin when norm and flags are known; optimizer of embedding on the device"});
  expect_says(runs.train("early", early, {"--dry-run"}),
              {"exact, lag 0, updates begin as gradients land; optimizer of embedding on the device"});
  expect_says(
      runs.train("limited", limited, {"--dry-run"}),
      {"delayed, lag 0 for 5 steps, then 1, 0 again if the loss rises by 0.25 nats; correction predict x1"});
}

TEST(ConfigBanner, SaysOnceThatDropoutIsNotApplied) {
  const TinyRuns runs;
  const Ran plain = runs.train("plain", {}, {"--dry-run"}),
            ran = runs.train("run", {{"model.config.attention_dropout", "0.25"}}, {"--dry-run"});
  expect_says(ran, {"note       dropout is not applied (the model's config names a rate of 0.25)"});
  EXPECT_EQ(ran.err.find("dropout"), ran.err.rfind("dropout"));
  EXPECT_EQ(plain.err.find("dropout"), plain.err.npos);
}

TEST(ConfigBanner, NamesTheNodesAndWhatDecidedTheThreads) {
  const TinyRuns runs;
  const std::string config = runs.config("run", {{"device.threads", "0"}});
  const Ran ran =
      run_tandem({"train", config, "--dry-run"}, [] { setenv("HWLOC_SYNTHETIC", "node:2 core:2 pu:1", 1); });
  expect_says(ran, {"4 threads", "4 of 4 physical cores", "numa       2 nodes; "});
  // AddressSanitizer keeps oneTBB from loading the library that binds threads to nodes.
  if (!kAddressSanitizer) {
    expect_says(ran,
                {"2 on node 0, 2 on node 1", "masters and moments lie with the threads that update them"});
  }
}

TEST(ConfigBanner, SaysThatHwlocFindsNothing) {
  const TinyRuns runs;
  const Ran ran = run_tandem({"train", runs.config("run", {}), "--dry-run"}, [] {
    setenv("HWLOC_COMPONENTS", "xml,stop", 1);
    setenv("HWLOC_XMLFILE", "/nonexistent.xml", 1);
  });
  expect_says(ran, {"numa       hwloc finds nothing here: taken to be one node; huge pages: "});
}

/// As taskset does it.
TEST(ConfigBanner, ThreadsFollowTheAffinityMask) {
  const TinyRuns runs;
  const Ran ran = run_tandem({"train", runs.config("run", {{"device.threads", "0"}}), "--dry-run"}, [] {
    cpu_set_t mask, one;
    sched_getaffinity(0, sizeof mask, &mask);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &mask)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  });
  expect_says(ran, {"cpu        1 threads", " (1 cpus)"});
}

TEST(ConfigBanner, DryRunsAsJsonAndQuietly) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", {}, {"--dry-run", "--json", "--quiet"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  const json::Value result = json::parse(ran.out, "train").root;
  EXPECT_EQ(*result.find("step"), json::Value(0));
  EXPECT_TRUE(result.find("stopped_by")->is_null());
  EXPECT_TRUE(result.find("checkpoint")->is_null());
}

TEST(ConfigBanner, TrainPrintsTheDocumentedObject) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", {}, {"--json", "--quiet"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  const json::Value result = json::parse(ran.out, "train").root;
  std::vector<std::string> keys;
  for (const json::Member& member : *result.object()) keys.push_back(member.key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"run", "step", "updates", "skipped", "loss", "eval_loss", "checkpoint",
                                      "tokens", "seconds", "tokens_per_s", "stopped_by"}));
  EXPECT_EQ(*result.find("run"), json::Value(runs.path("run")));
  EXPECT_EQ(*result.find("step"), json::Value(12));
  EXPECT_EQ(*result.find("tokens"), json::Value(12 * 4 * 16));
  EXPECT_EQ(*result.find("checkpoint"), json::Value(checkpoint_path(runs.path("run"), 12)));
  EXPECT_EQ(*result.find("stopped_by"), json::Value("steps"));
}

TEST(ConfigBanner, TheQuickstartStarts) {
  const TemporaryFolder folder;
  const std::string config = std::string(TANDEM_SOURCE_DIR) + "/configs/quickstart.json";
  const Ran ran = run_tandem({"train", config, "--max-steps", "2", "--quiet", "--json", "--set",
                              "output_dir=" + folder.path("run")});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(*json::parse(ran.out, "train").root.find("stopped_by"), json::Value("max_steps"));
}

}  // namespace
}  // namespace tandem
