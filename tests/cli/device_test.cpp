// Threads, instruction sets and chaos change nothing that a run computes.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/cpu_features.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

TEST(IdentityProgram, CheckpointsAreBitEqualOverThreadsInstructionSetsAndChaos) {
  const TinyRuns runs;
  std::vector<Keys> devices = {{{"device.threads", "2"}},
                               {{"device.threads", "3"}},
                               {{"device.chaos_seed", "11"}},
                               {{"device.chaos_seed", "12"}, {"device.threads", "2"}}};
  for (const Isa isa : usable_isas())
    devices.push_back({{"device.isa", fmt::format("\"{}\"", name_of(isa))}});
  const Keys delayed = {{"zero_optimization.offload_optimizer.schedule", "\"delayed\""},
                        {"zero_optimization.offload_optimizer.warmup_steps", "2"}};
  ASSERT_EQ(runs.train("reference", delayed, {"--max-steps", "5"}).status, 0);
  int number = 0;
  for (Keys keys : devices) {
    const std::string name = fmt::format("run-{}", number++);
    keys.insert(delayed.begin(), delayed.end());
    const Ran ran = runs.train(name, keys, {"--max-steps", "5"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    SCOPED_TRACE(keys.begin()->first + " " + keys.begin()->second);
    expect_same_checkpoint(checkpoint_path(runs.path("reference"), 5), checkpoint_path(runs.path(name), 5));
  }
}

}  // namespace
}  // namespace tandem
