// activation_checkpointing: what a run computes does not depend on it, what it takes and moves does.
#include <gtest/gtest.h>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

const std::string kPolicy = "activation_checkpointing.policy";

/// Six layers, so that most inputs are neither at forward's end nor at backward's beginning.
Keys deep() { return {{"model.config.num_hidden_layers", "6"}, {"data.eval", "null"}}; }

int64_t of_last_step(const TinyRuns& runs, const std::string& run, const char* key) {
  return *metrics_of(runs.path(run)).at(11).find(key)->i64();
}

TEST(IdentityActivations, EveryPolicyTrainsTheSameWeights) {
  const TinyRuns runs;
  const std::vector<std::string> policies = {"keep", "recompute", "recompute_offload"};
  for (const std::string& policy : policies)
    ASSERT_EQ(runs.train(policy, deep(), {"--set", kPolicy + "=" + policy}).status, 0) << policy;
  ASSERT_EQ(
      runs.train("deepspeed", deep(), {"--set", "activation_checkpointing.cpu_checkpointing=true"}).status,
      0);
  for (const char* run : {"keep", "recompute_offload", "deepspeed"}) {
    EXPECT_EQ(computed(runs.path(run)), computed(runs.path("recompute"))) << run;
    expect_same_checkpoint(checkpoint_path(runs.path(run), 12), checkpoint_path(runs.path("recompute"), 12));
  }
  // Inputs of 2 x 16 x 32 in bf16; 2 micro-batches: all but one of 6 x 2 travel, and of 7 x 2 with a gradient
  // the device has an input of each micro-batch and two more.
  constexpr int64_t kInput = 2 * 16 * 32 * 2;
  for (const char* run : {"recompute_offload", "deepspeed"}) {
    const auto more = [&](const char* key) {
      return of_last_step(runs, run, key) - of_last_step(runs, "recompute", key);
    };
    EXPECT_EQ(more("device_peak_bytes"), -(7 * 2 + 1 - 4) * kInput);
    for (const char* key : {"pinned_bytes", "host_bytes", "d2h_bytes", "h2d_bytes"})
      EXPECT_EQ(more(key), (6 * 2 - 1) * kInput) << run << " " << key;
  }
}

TEST(ResumeActivations, UnderAnotherPolicyGoesOnAsBefore) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("whole", deep(), {"--set", kPolicy + "=recompute"}).status, 0);
  ASSERT_EQ(runs.train("run", deep(), {"--set", kPolicy + "=recompute_offload", "--max-steps", "7"}).status,
            0);
  for (const auto& [policy, until] : {std::pair{"keep", "10"}, {"recompute_offload", "12"}}) {
    const std::vector<std::string> options = {"--set", kPolicy + "=" + policy, "--resume",
                                              "auto",  "--max-steps",          until};
    const Ran ran = runs.train("run", deep(), options);
    ASSERT_EQ(ran.status, 0) << ran.err;
  }
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), checkpoint_path(runs.path("whole"), 12));
}

}  // namespace
}  // namespace tandem
