// tandem eval: what it measures, from each way of naming a model and data.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <regex>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

/// A run of 12 steps whose last evaluation train has printed.
class ConfigEval : public ::testing::Test {
 protected:
  ConfigEval() : config_(runs_.config("run")) {
    const Ran ran = run_tandem(
        {"train", config_, "--json", "--quiet", "--set", "checkpoint.every=5", "--set", "checkpoint.keep=3"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    trained_loss_ = number(json::parse(ran.out, "train").root, "eval_loss");
  }
  static double number(const json::Value& object, const std::string& key) {
    const json::Value* value = object.find(key);
    EXPECT_TRUE(value != nullptr && value->number()) << key;
    return value != nullptr && value->number() ? *value->number() : NAN;
  }
  [[nodiscard]] json::Value eval(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "eval");
    arguments.emplace_back("--json");
    const Ran ran = run_tandem(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    return json::parse(ran.out, "eval").root;
  }
  [[nodiscard]] static std::string text(const json::Value& object, const std::string& key) {
    return *object.find(key)->string();
  }
  [[nodiscard]] std::string step(int64_t number) const { return checkpoint_path(runs_.path("run"), number); }
  const TinyRuns runs_;
  const std::string config_;
  double trained_loss_ = 0;
};

TEST_F(ConfigEval, PrintsTheDocumentedObject) {
  const json::Value result = eval({config_});
  std::vector<std::string> keys;
  for (const json::Member& member : *result.object()) keys.push_back(member.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"loss", "perplexity", "tokens", "sequences", "sequence_length",
                                            "dtype", "device", "model", "step", "tokens_per_s"}));
  // The same weights, samples and batches as the run's last evaluation, so the same sum to the last bit but
  // for how the batches are added up: four sequences at a time there, two here.
  EXPECT_NEAR(number(result, "loss"), trained_loss_, 1e-6 * trained_loss_);
  EXPECT_DOUBLE_EQ(number(result, "perplexity"), std::exp(number(result, "loss")));
  EXPECT_EQ(number(result, "sequences"), 7);
  EXPECT_EQ(number(result, "tokens"), 7 * 16);
  EXPECT_EQ(number(result, "sequence_length"), 16);
  EXPECT_EQ(text(result, "dtype"), "bfloat16");
  EXPECT_EQ(text(result, "device"), "host");
  EXPECT_EQ(text(result, "model"), step(12));
  EXPECT_EQ(number(result, "step"), 12);
}

TEST_F(ConfigEval, EveryWayOfNamingTheSameGivesTheSame) {
  const double loss = number(eval({config_}), "loss");
  EXPECT_EQ(number(eval({config_, "--checkpoint", "latest"}), "loss"), loss);
  EXPECT_EQ(number(eval({config_, "--checkpoint", step(12)}), "loss"), loss);
  const std::vector<std::string> by_hand = {
      "--model", step(12), "--data", runs_.path("eval.bin"), "--format", "bytes", "--sequence-length", "16"};
  EXPECT_NEAR(number(eval(by_hand), "loss"), loss, 1e-6 * loss);
  const json::Value earlier = eval({config_, "--checkpoint", step(5)});
  EXPECT_EQ(number(earlier, "step"), 5);
  EXPECT_NE(number(earlier, "loss"), loss);
}

TEST_F(ConfigEval, OptionsSayHowMuchAndHow) {
  const json::Value few = eval({config_, "--max-tokens", "50"});
  EXPECT_EQ(number(few, "tokens"), 48) << "whole sequences, at most 50 tokens";
  const json::Value longer = eval({config_, "--sequence-length", "28"});
  EXPECT_EQ(number(longer, "sequence_length"), 28);
  EXPECT_EQ(number(longer, "sequences"), 4) << "113 bytes";
  const json::Value wide = eval({config_, "--dtype", "float32"});
  EXPECT_EQ(text(wide, "dtype"), "float32");
  // The stored weights are bf16 either way; only the arithmetic between differs: 8 bits of mantissa, over
  // some 20 roundings in a row.
  EXPECT_NEAR(number(wide, "loss"), trained_loss_, 20 * std::ldexp(trained_loss_, -9));
  EXPECT_NE(number(wide, "loss"), trained_loss_);
  const json::Value other = eval({config_, "--data", runs_.path("train.bin"), "--format", "bytes"});
  EXPECT_EQ(number(other, "sequences"), 10);
}

TEST_F(ConfigEval, NeedsOnlyWhatItReads) {
  std::filesystem::remove(runs_.path("train.bin"));
  EXPECT_EQ(number(eval({config_}), "step"), 12);
  std::filesystem::remove(runs_.path("eval.bin"));
  const Ran ran = run_tandem({"eval", config_});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("data.eval names"), std::string::npos) << ran.err;
}

TEST_F(ConfigEval, PrintsForPeopleToo) {
  const Ran ran = run_tandem({"eval", config_});
  EXPECT_EQ(ran.status, 0);
  for (const char* part : {"loss ", "perplexity", "tokens ", "(step 12), bfloat16 on host"})
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << "\n" << ran.out;
}

TEST_F(ConfigEval, RefusesWhatDoesNotGoTogether) {
  const std::string data = runs_.path("eval.bin");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "no model is named"},
      {{"--model", step(12)}, "no evaluation data is named"},
      {{config_, "--model", step(12)}, "both CONFIG and --model"},
      {{"--model", step(12), "--data", data, "--checkpoint", "latest"}, "--checkpoint goes with CONFIG"},
      {{"--model", step(12), "--data", data, "--set", "a=1"}, "--set goes with CONFIG"},
      {{config_, "--format", "bytes"}, "--format goes with --data"},
      {{config_, "--data", data, "--format", "words"}, "token format \"words\" is unknown"},
      {{config_, "--dtype", "int8"}, "unknown dtype \"int8\""},
      {{config_, "--max-tokens", "0"}, "--max-tokens: must be an integer >= 1"},
      {{config_, "--sequence-length", "33"}, "above the model's 32 positions"},
      {{config_, "--checkpoint", runs_.path("none")}, "no such folder"},
      {{config_, "--set", "output_dir=" + runs_.path("none")}, "no complete checkpoint"},
      {{config_, "--set", "data.eval=null"}, "the config names no evaluation data"},
  };
  for (const auto& [arguments, part] : cases) {
    std::vector<std::string> all = arguments;
    all.insert(all.begin(), "eval");
    const Ran ran = run_tandem(all);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find(part), std::string::npos) << part << "\n" << ran.err;
    EXPECT_NE(ran.err.find("\n  at: "), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("\n  try: "), std::string::npos) << ran.err;
  }
}

TEST_F(ConfigEval, ADeviceThatIsTooSmallNamesWhatFits) {
  const Ran ran = run_tandem({"eval", config_, "--dtype", "float32", "--set", "device.memory_limit=150KiB"});
  EXPECT_EQ(ran.status, 3) << ran.err;
  EXPECT_NE(ran.err.find("try: --dtype bfloat16"), std::string::npos) << ran.err;
  EXPECT_EQ(run_tandem({"eval", config_, "--set", "device.memory_limit=150KiB"}).status, 0);
}

/// A model of 30 layers of 9280 parameters: 544 KiB in bf16. A window of three of them and the embedding are
/// 70 KiB; the logits of a batch, in fp32, 32 KiB.
class ConfigEvalStreamed : public ::testing::Test {
 protected:
  [[nodiscard]] std::string trained(const std::string& name, Keys keys = {}) const {
    keys["model.config.num_hidden_layers"] = "30";
    keys["train.steps"] = "2";
    const Ran ran = runs_.train(name, keys);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return runs_.path(name + ".json");
  }
  /// What is printed, without the speed.
  [[nodiscard]] static std::string eval(std::vector<std::string> arguments, const std::string& limit) {
    arguments.insert(arguments.begin(), "eval");
    if (!limit.empty()) arguments.insert(arguments.end(), {"--set", "device.memory_limit=" + limit});
    const Ran ran = run_tandem(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return std::regex_replace(ran.out, std::regex(", [0-9]+ tokens/s|,?\n *\"tokens_per_s\": [^\n]*"), "");
  }
  static constexpr const char* kStreamed = ", streamed\n";
  const TinyRuns runs_;
};

TEST_F(ConfigEvalStreamed, ADeviceWithRoomForTheWindowOnlyGivesTheSame) {
  const std::string config = trained("run");
  std::string all = eval({config}, "");
  EXPECT_EQ(all.find(kStreamed), std::string::npos) << all;
  all.insert(all.size() - 1, ", streamed");
  EXPECT_EQ(eval({config}, "300KiB"), all);
  EXPECT_EQ(eval({config, "--json"}, "300KiB"), eval({config, "--json"}, "")) << "the loss to its last bit";

  const Ran ran = run_tandem({"eval", config, "--set", "device.memory_limit=90KiB"});
  EXPECT_EQ(ran.status, 3);
  EXPECT_NE(ran.err.find("the device needs "), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("with weights that stream where 90.00 KiB may be used"), std::string::npos);
  EXPECT_NE(ran.err.find("\n  try: --sequence-length "), std::string::npos) << ran.err;
}

TEST_F(ConfigEvalStreamed, AConfigThatAsksForItGetsIt) {
  const std::string config = trained("run", {{"zero_optimization.offload_param.device", "\"cpu\""}});
  const std::string latest = eval({config, "--checkpoint", "latest"}, "");
  EXPECT_TRUE(latest.ends_with(kStreamed)) << latest;
  const std::vector<std::string> resident = {config, "--set", "zero_optimization.offload_param.device=none"};
  EXPECT_EQ(eval(resident, ""), std::regex_replace(latest, std::regex(kStreamed), "\n"));
}

}  // namespace
}  // namespace tandem
