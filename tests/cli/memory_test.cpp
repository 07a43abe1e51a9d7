// Resident memory of the whole program against what the banner says.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

constexpr double kMiB = 1 << 20;

/// 6.3 million parameters, a third of them in the embedding: planes of 24 MiB in fp32, a block of 8 MiB.
Keys larger_model() {
  return {{"model.config.hidden_size", "256"},
          {"model.config.intermediate_size", "768"},
          {"model.config.num_hidden_layers", "5"},
          {"model.config.num_attention_heads", "4"},
          {"model.config.num_key_value_heads", "2"},
          {"model.config.vocab_size", "8192"},
          {"device.threads", "2"},
          {"train.steps", "3"},
          {"data.eval", "null"}};
}

/// The sum of the banner's device, host and fixed bytes.
double banner_bytes(const std::string& text) {
  double sum = 0;
  for (const char* tier : {"memory     device ", " host ", "fixed "}) {
    std::smatch match;
    const std::regex number(std::string(tier) + R"(([0-9.]+) ([KM])iB)");
    EXPECT_TRUE(std::regex_search(text, match, number)) << tier << "\n" << text;
    sum += std::stod(match[1].str()) * (match[2].str() == "K" ? 1024 : kMiB);
  }
  return sum;
}

TEST(MemoryProgram, TheBannerIsThePeakOfTheWholeProcess) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TinyRuns runs;
  struct Case {
    const char *bf16, *policy, *device;
  };
  for (const Case& c : {Case{"false", "\"keep\"", "\"cpu\""},
                        {"false", "\"recompute\"", "\"none\""},
                        {"true", "\"keep\"", "\"none\""},
                        {"true", "\"recompute\"", "\"cpu\""}}) {
    Keys keys = larger_model();
    keys["bf16.enabled"] = c.bf16;
    keys["activation_checkpointing.policy"] = c.policy;
    keys["zero_optimization.offload_optimizer.device"] = c.device;
    const Ran ran = runs.train(fmt::format("{}-{}", c.bf16[0], c.device[1]), keys);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const double said = banner_bytes(ran.err), peak = static_cast<double>(ran.peak_bytes);
    // Pages of code and heaps of threads that are touched only later; arenas that are not used to the end.
    EXPECT_NEAR(peak, said, 0.05 * said + 4 * kMiB) << ran.err;
  }
}

double peak_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) * 1024;
  return 0;
}

TEST(MemoryProgram, AHundredStepsAndSavesTakeNoMoreThanTheFirstSteps) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TinyRuns runs;
  Keys keys = larger_model();
  keys["train.steps"] = "100";
  keys["checkpoint.every"] = "40";
  keys["data.eval"] = "\"eval.bin\"";
  keys["train_micro_batch_size_per_gpu"] = "1";
  const std::string config = runs.config("run", keys);
  double early = 0;
  const Ran ran = run_watched({"train", config, "--quiet"}, [&](pid_t process) {
    ASSERT_TRUE(wait_for(process, [&] { return count_lines(runs.path("run/metrics.jsonl")) >= 2; }));
    early = peak_of(process);
  });
  ASSERT_EQ(ran.status, 0) << ran.err;
  ASSERT_GT(early, 100 * kMiB);
  // A save holds a piece of 4 MiB in its staging and one on its way to the file; some is the heap's.
  EXPECT_LT(static_cast<double>(ran.peak_bytes), early + 10 * kMiB);
}

}  // namespace
}  // namespace tandem
