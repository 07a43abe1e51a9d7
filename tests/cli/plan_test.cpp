// tandem plan through the program: its object, its status, and that a run takes what it says.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

int64_t integer(const json::Value& object, const std::string& key) {
  const json::Value* value = object.find(key);
  EXPECT_TRUE(value != nullptr && value->i64()) << key;
  return value != nullptr && value->i64() ? *value->i64() : -1;
}

std::vector<std::string> keys_of(const json::Value& object) {
  std::vector<std::string> keys;
  for (const json::Member& member : *object.object()) keys.push_back(member.key);
  return keys;
}

json::Value plan(const std::string& config, std::vector<std::string> options, int status = 0) {
  options.insert(options.begin(), {"plan", config, "--json"});
  const Ran ran = run_tandem(options);
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_EQ(ran.err.empty(), status == 0) << ran.err;
  return json::parse(ran.out, "plan").root;
}

const json::Value& tier(const json::Value& plan, const std::string& name) {
  return *plan.find("tiers")->find(name);
}

/// The keys of a model of so many billion parameters: Llama 2's.
Keys llama(int billions) {
  const bool large = billions == 70;
  return {{"model.config.hidden_size", large ? "8192" : "4096"},
          {"model.config.intermediate_size", large ? "28672" : "11008"},
          {"model.config.num_hidden_layers", large ? "80" : "32"},
          {"model.config.num_attention_heads", large ? "64" : "32"},
          {"model.config.num_key_value_heads", large ? "8" : "32"},
          {"model.config.vocab_size", "32000"},
          {"model.config.max_position_embeddings", "4096"},
          {"model.config.tie_word_embeddings", "false"},
          {"data.sequence_length", "4096"}};
}

TEST(MemoryPlanProgram, PrintsTheDocumentedObject) {
  const TinyRuns runs;
  const json::Value result = plan(runs.config("run"), {});
  EXPECT_EQ(keys_of(result),
            (std::vector<std::string>{"fits", "first_knob", "tiers", "activations", "placement"}));
  EXPECT_EQ(*result.find("fits"), json::Value(true));
  EXPECT_TRUE(result.find("first_knob")->is_null());
  EXPECT_EQ(keys_of(*result.find("tiers")), (std::vector<std::string>{"device", "pinned", "host", "disk"}));
  for (const json::Member& member : *result.find("tiers")->object()) {
    EXPECT_EQ(keys_of(member.value), (std::vector<std::string>{"need_bytes", "limit_bytes", "scopes"}));
    int64_t sum = 0;
    for (const json::Member& scope : *member.value.find("scopes")->object()) {
      EXPECT_GT(*scope.value.i64(), 0) << scope.key;
      sum += *scope.value.i64();
    }
    EXPECT_EQ(integer(member.value, "need_bytes"), sum) << member.key;
    EXPECT_GE(integer(member.value, "limit_bytes"), sum) << member.key;
  }
  EXPECT_FALSE(std::filesystem::exists(runs.path("run")));
}

TEST(MemoryPlanProgram, ARunTakesWhatItSaysToTheByte) {
  const TinyRuns runs;
  const std::vector<Keys> cases = {
      {},
      {{"zero_optimization.offload_optimizer.schedule", "\"delayed\""},
       {"activation_checkpointing.policy", "\"keep\""}},
      {{"zero_optimization", R"({"offload_optimizer": {"device": "none"}})"},
       {"train.order", "\"micro_batch_major\""}},
      {{"gradient_accumulation_steps", "3"}, {"activation_checkpointing.policy", "\"recompute_offload\""}},
      {{"zero_optimization.offload_optimizer.moment_format", "\"int8\""},
       {"zero_optimization.offload_optimizer.master_format", "\"split\""},
       {"model.freeze", R"(["*embed*"])"}},
      {{"zero_optimization", R"({"offload_optimizer": {}})"}},
      {{"zero_optimization.offload_optimizer.ratio", "0.5"},
       {"zero_optimization.offload_optimizer.moment_format", "\"int8\""}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string name = fmt::format("run{}", i);
    const json::Value said = plan(runs.config(name, cases[i]), {});
    const Ran ran = runs.train(name, cases[i], {"--quiet"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json::Value line = metrics_of(runs.path(name)).at(11);
    EXPECT_EQ(integer(line, "device_peak_bytes"), integer(tier(said, "device"), "need_bytes"));
    EXPECT_EQ(integer(line, "pinned_bytes"), integer(tier(said, "pinned"), "need_bytes"));
    EXPECT_EQ(integer(line, "host_bytes"), integer(tier(said, "host"), "need_bytes"));
  }
}

TEST(MemoryPlanProgram, SeventyBillionParametersOnAnyMachine) {
  const TinyRuns runs;
  const std::string config = runs.config("run", llama(70));
  const Ran ran =
      run_tandem({"plan", config, "--set", "device.kind=cuda", "--set", "device.memory_limit=80GB"});
  EXPECT_EQ(ran.status, 3) << ran.err;
  for (const char* part : {"68976648192 parameters", "device ", "  gradients", "host ", "  exp_avg_sq",
                           "disk ", "It does not fit."})
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << "\n" << ran.out;
  EXPECT_TRUE(ran.err.starts_with("error: the run does not fit: the device needs 1")) << ran.err;
  EXPECT_NE(ran.err.find("\n  try: "), std::string::npos);
  if (!kAddressSanitizer) {
    EXPECT_LT(ran.peak_bytes, size_t{100} << 20);
  }
}

/// Fp32 masters and moments are 12 bytes a parameter, the slots 2: 14 in `synchronous`, whatever is here.
TEST(MemoryPlanProgram, SevenBillionOnACardThatIsNotHere) {
  const TinyRuns runs;
  const std::string config = runs.config("run", llama(7));
  const Ran ran = run_tandem({"plan", config, "--json", "--set", "device.kind=cuda:3", "--set",
                              "device.memory_limit=24GB", "--set", "train_micro_batch_size_per_gpu=1"});
  const json::Value result = json::parse(ran.out, "plan").root;
  EXPECT_EQ(ran.status == 0, *result.find("fits") == json::Value(true));
  EXPECT_EQ(integer(tier(result, "device"), "limit_bytes"), 24'000'000'000);
  EXPECT_LT(integer(tier(result, "device"), "need_bytes"), 24'000'000'000);
  EXPECT_NEAR(static_cast<double>(integer(tier(result, "host"), "need_bytes")), 14 * 6.738e9, 1e8);
}

TEST(MemoryPlanProgram, TheKnobThatItNamesMakesItFit) {
  const TinyRuns runs;
  const Keys keys = {{"activation_checkpointing.policy", "\"keep\""}, {"device.memory_limit", "\"350KiB\""}};
  const std::string config = runs.config("run", keys);
  const json::Value result = plan(config, {}, 3);
  EXPECT_EQ(*result.find("fits"), json::Value(false));
  EXPECT_EQ(*result.find("first_knob"), json::Value("activation_checkpointing.policy: \"recompute\""));
  plan(config, {"--set", "activation_checkpointing.policy=recompute"});
}

TEST(MemoryPlanProgram, NeedsNeitherDataNorARunFolder) {
  const TinyRuns runs;
  const std::string config = runs.config("run", {{"data.train", "\"not-there-yet.bin\""},
                                                 {"data.eval", "\"nor-this.bin\""},
                                                 {"train", R"({"epochs": 2.5})"}});
  EXPECT_EQ(run_tandem({"plan", config}).status, 0);
  EXPECT_EQ(run_tandem({"plan", config}).status, 0);
}

TEST(MemoryPlanProgram, SaysWhatIsWrong) {
  const TinyRuns runs;
  const auto expect_refused = [&](const Keys& keys, const std::vector<std::string>& options,
                                  const std::vector<std::string>& parts) {
    std::vector<std::string> arguments = {"plan", runs.config("run", keys)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Ran ran = run_tandem(arguments);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    for (const std::string& part : parts) EXPECT_NE(ran.err.find(part), std::string::npos) << ran.err;
  };
  expect_refused({{"device.kind", "\"cuda:9\""}}, {},
                 {"device \"cuda:9\" is not here (", "(device.kind)", "try: device.memory_limit"});
  expect_refused({{"device.kind", "\"null\""}}, {}, {"null", "(device.kind)"});
  expect_refused({{"model", R"({"path": "elsewhere"})"}}, {}, {"model.path names", "which does not exist"});
  expect_refused({{"data.sequence_length", "64"}}, {}, {"64 is above the model's 32 positions"});
  expect_refused({{"gradient_cliping", "1"}}, {}, {"unknown key", "try: gradient_clipping"});
  expect_refused({{"model.config.num_hidden_layers", "0"}}, {}, {"num_hidden_layers"});
  expect_refused({{"gradient_accumulation_steps", "10000000"}}, {},
                 {"a step of 10000000 x 2 sequences of 16 tokens can't be planned: 67108864 tokens are",
                  "try: a smaller batch"});
  expect_refused({}, {"--auto", "best.json"}, {"unknown option \"--auto\""});
  EXPECT_EQ(run_tandem({"plan", runs.path("absent.json")}).status, 2);
}

/// ulimit -v below what a reservation needs: said, not suffered.
TEST(MemoryPlanProgram, AnAddressSpaceLimitIsNamed) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TinyRuns runs;
  const std::string config = runs.config("run", llama(70));
  const Ran ran = run_tandem({"plan", config}, [] {
    const rlimit limit{rlim_t{4} << 30, rlim_t{4} << 30};
    setrlimit(RLIMIT_AS, &limit);
  });
  EXPECT_EQ(ran.status, 3) << ran.err;
  EXPECT_NE(ran.err.find("ulimit -v"), std::string::npos) << ran.err;
}

/// Two cards of one rate beside host memories of two: the slower one binds, and more tokens hide it.
TEST(PlanProgram, PredictsTheStepOnAMachine) {
  const TinyRuns runs;
  Keys keys = llama(7);
  keys.insert({{"device.kind", "\"host\""},
               {"device.memory_limit", "\"1TB\""},
               {"bf16.enabled", "true"},
               {"zero_optimization.offload_optimizer.schedule", "\"delayed\""}});
  keys["data.sequence_length"] = "512";
  const std::string config = runs.config("run", keys);
  const auto predicted = [&](const char* machine) {
    const Ran ran = run_tandem({"plan", config, "--json", "--hardware", machine});
    return json::parse(ran.out, "plan").root;
  };
  const json::Value desktop = predicted("rtx4090-desktop"), server = predicted("rtx4090-8channel");
  const auto number = [](const json::Value& of, const char* key) { return of.find(key)->number().value(); };
  EXPECT_GT(number(desktop, "step_ms"), 1.5 * number(server, "step_ms"));
  EXPECT_EQ(*desktop.find("binding")->string(), "host memory");
  EXPECT_GT(number(desktop, "ratio_to_gpu_only"), number(server, "ratio_to_gpu_only"));
  EXPECT_EQ(keys_of(*desktop.find("exposed_ms")), (std::vector<std::string>{"d2h", "adam", "h2d", "other"}));
  const json::Value& hidden = *desktop.find("hidden_from_tokens");
  EXPECT_LT(number(hidden, "delayed"), number(hidden, "exact"));
  EXPECT_LT(number(hidden, "exact"), number(hidden, "synchronous"));
  const json::Value& first = desktop.find("knobs")->array()->front();
  EXPECT_EQ(keys_of(first),
            (std::vector<std::string>{"key", "value", "step_ms", "tokens_per_s", "bytes_saved"}));
  EXPECT_GT(number(first, "tokens_per_s"), number(desktop, "tokens_per_s"));
}

TEST(PlanProgram, AnUnknownMachineIsRefusedWithTheNearest) {
  const TinyRuns runs;
  const Ran ran = run_tandem({"plan", runs.config("run"), "--hardware", "rtx4090"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("no hardware profile \"rtx4090\""), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("try: \"rtx4090-"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace tandem
