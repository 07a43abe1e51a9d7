// The same run on machines with other NUMA nodes, and so with other threads: the same bits.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

/// Parameters of several tasks each, on all threads that the machine has.
Keys keys_of(const char* masters, const char* moments) {
  const std::string section = "zero_optimization.offload_optimizer.";
  return {{"model.config.hidden_size", "128"},
          {"model.config.intermediate_size", "512"},
          {"device.threads", "0"},
          {"train.steps", "4"},
          {section + "device", "\"cpu\""},
          {section + "schedule", "\"delayed\""},
          {section + "warmup_steps", "2"},
          {section + "master_format", masters},
          {section + "moment_format", moments}};
}

/// Trains on a synthetic machine; the final checkpoint.
std::string trained_on(const TinyRuns& runs, const char* machine, const Keys& keys) {
  std::string name = machine;
  for (char& c : name)
    if (c == ' ' || c == ':') c = '_';
  const Ran ran =
      run_tandem({"train", runs.config(name, keys)}, [&] { setenv("HWLOC_SYNTHETIC", machine, 1); });
  EXPECT_EQ(ran.status, 0) << ran.err;
  return checkpoint_path(runs.path(name), 4);
}

TEST(IdentityOfNodes, SoManyNodesGiveTheSameCheckpoint) {
  for (const auto& [masters, moments] :
       {std::pair("\"fp32\"", "\"fp32\""), std::pair("\"ulp8\"", "\"int8\"")}) {
    const TinyRuns runs;
    const Keys keys = keys_of(masters, moments);
    const std::string one = trained_on(runs, "node:1 core:1 pu:1", keys);
    for (const char* machine :
         {"node:1 core:3 pu:1", "node:2 core:1 pu:2", "node:2 core:2 pu:1", "node:4 core:1 pu:1"})
      expect_same_checkpoint(trained_on(runs, machine, keys), one);
  }
}

}  // namespace
}  // namespace tandem
