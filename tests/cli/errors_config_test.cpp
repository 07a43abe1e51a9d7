// Configs that can't run, through the program: status, place and hint, and nothing written.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "gpu/cuda_probe.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The program refuses, says all the parts on stderr and nothing on stdout, and makes no run folder.
void expect_refused(const TinyRuns& runs, const Ran& ran, int status, const std::vector<std::string>& parts) {
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(ran.err.starts_with("error: ")) << ran.err;
  for (const std::string& part : parts) EXPECT_TRUE(contains(ran.err, part)) << part << "\n" << ran.err;
  EXPECT_FALSE(std::filesystem::exists(runs.path("run")));
}

TEST(ConfigErrorsProgram, TellsEveryFaultOfAConfigInOnePass) {
  const TinyRuns runs;
  const std::string config = runs.config("run", {{"gradient_cliping", "1"},
                                                 {"train_batch_size", "10"},
                                                 {"optimizer.params.lr", "\"auto\""},
                                                 {"fp16", R"({"enabled": true})"},
                                                 {"train.steps", "15099494.4"},
                                                 {"amp", "{}"}});
  expect_refused(runs, run_tandem({"train", config}), 2,
                 {"unknown key \"gradient_cliping\"\n  at: " + config + ":", "try: gradient_clipping",
                  "train_batch_size 10 is not", "optimizer.params.lr is \"auto\"",
                  "bf16.enabled and fp16.enabled are both true", "train.steps must be an integer",
                  "amp would", "\n6 errors\n"});
}

TEST(ConfigErrorsProgram, TextsThatAreNoConfig) {
  const TinyRuns runs;
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"{\"output_dir\": \"x\",}", ":1:"}, {"[1, 2]", "must be an object"},
      {"\xEF\xBB\xBF{}", ":1:1"},          {"{\"a\": NaN}", ":1:7"},
      {std::string(1 << 20, '['), ":1:"},  {"", "the file is empty"}};
  for (const auto& [text, part] : texts) {
    const std::string path = runs.folder().write("bad.json", text);
    expect_refused(runs, run_tandem({"train", path}), 2, {"at: " + path, part});
  }
  expect_refused(runs, run_tandem({"train", runs.path("absent.json")}), 2, {"does not exist", "absent.json"});
}

TEST(ConfigErrorsProgram, NamesAllThatIsNotThereAtItsPlaceInTheConfig) {
  const TinyRuns runs;
  std::filesystem::create_symlink("/nowhere/at-all", runs.path("link.bin"));
  const Ran ran = runs.train("run", {{"data.train", R"(["train.bin", "absent.bin", "link.bin"])"},
                                     {"data.eval", R"("gone.bin")"},
                                     {"model.tokenizer", R"("no-tokenizer")"},
                                     {"device.kind", R"("cuda:7")"},
                                     {"device.isa", R"("neon")"}});
#if defined(__aarch64__)
  const std::string count = "\n5 errors\n";
#else
  const std::string count = "\n6 errors\n";
#endif
  expect_refused(
      runs, ran, 2,
      {"data.train names \"" + runs.path("absent.bin") +
           "\", which does not exist\n  at: " + runs.path("run.json") + ":",
       "is a link to \"/nowhere/at-all\"", "gone.bin", "(data.eval)", "no-tokenizer", "(model.tokenizer)",
       "device \"cuda:7\" can't be used: " + gpu::probe_cuda().why, "(device.kind)", count});
}

TEST(ConfigErrorsProgram, AConfigIsFoundInItsOwnFolder) {
  const TinyRuns runs;
  runs.config("run");
  const Ran ran = run_tandem({"train", "run.json", "--dry-run"}, [&] {
    if (chdir(runs.folder().path().c_str()) != 0) _exit(99);
  });
  EXPECT_EQ(ran.status, 0) << ran.err;
}

TEST(ConfigErrorsProgram, ModelsThatTheDataDoesNotSuit) {
  const TinyRuns runs;
  expect_refused(runs, runs.train("run", {{"data.sequence_length", "33"}}), 2,
                 {"33 is above the model's 32 positions", "(data.sequence_length)", "try: 32 or less"});
  expect_refused(runs, runs.train("run", {{"model.config.model_type", "\"mamba\""}}), 2,
                 {"model_type \"mamba\" can't be trained", "run.json:"});
  expect_refused(runs, runs.train("run", {{"optimizer.params.no_decay", R"(["*.bais"])"}}), 2, {"*.bais"});
}

TEST(ConfigErrorsProgram, AKnobThatIsOfferedMakesTheRunFit) {
  const TinyRuns runs;
  const Keys many = {{"activation_checkpointing.policy", "\"keep\""}, {"device.memory_limit", "\"350KiB\""}};
  expect_refused(runs, runs.train("run", many), 3,
                 {"the device needs ", " where 350.00 KiB may be used", "(device.memory_limit)",
                  "try: activation_checkpointing.policy: \"recompute\""});
  EXPECT_EQ(
      runs.train("run", many, {"--dry-run", "--set", "activation_checkpointing.policy=recompute"}).status, 0);
}

TEST(ConfigErrorsProgram, SeventyBillionParametersAreRefusedWithoutTouchingMemory) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", {{"model.config.hidden_size", "8192"},
                                     {"model.config.intermediate_size", "28672"},
                                     {"model.config.num_hidden_layers", "80"},
                                     {"model.config.num_attention_heads", "64"},
                                     {"model.config.num_key_value_heads", "8"},
                                     {"model.config.vocab_size", "128256"},
                                     {"device.memory_limit", "\"8GiB\""}});
  expect_refused(runs, ran, 3, {"the device needs 1", " GiB where 8.00 GiB may be used"});
  if (!kAddressSanitizer) {
    EXPECT_LT(ran.peak_bytes, size_t{64} << 20);
  }
}

TEST(ConfigErrorsProgram, AnAddressSpaceLimitIsRefusedBeforeItHurts) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TinyRuns runs;
  const std::string config = runs.config("run");
  const Ran ran = run_tandem({"train", config}, [] {
    const rlimit limit{rlim_t{600} << 20, rlim_t{600} << 20};
    setrlimit(RLIMIT_AS, &limit);
  });
  expect_refused(runs, ran, 3, {"as address space (ulimit -v)"});
}

TEST(ConfigErrorsProgram, OptionsThatTakeNumbersSayWhatTheyGot) {
  const TinyRuns runs;
  for (const char* bad : {"0", "-1", "abc", "1.5", "99999999999999999999"})
    expect_refused(runs, runs.train("run", {}, {"--max-steps", bad}), 2,
                   {std::string("--max-steps: must be an integer >= 1, but is \"") + bad, "command line"});
  expect_refused(runs, runs.train("run", {}, {"--set", "train.steps"}), 2, {"--set needs KEY=VALUE"});
  expect_refused(runs, run_tandem({"train"}), 2, {"CONFIG is required"});
}

}  // namespace
}  // namespace tandem
