#include <gtest/gtest.h>

#include "config_testing.h"

namespace tandem {
namespace {

using namespace config_testing;

/// Every stored key away from its default, as far as they go together.
Config unusual() {
  return with(
      {"train_micro_batch_size_per_gpu=2",
       "gradient_clipping=0.1",
       "steps_per_print=3",
       "fp16.enabled=true",
       "fp16.loss_scale=2.5",
       "fp16.initial_scale_power=5",
       "fp16.loss_scale_window=7",
       "fp16.hysteresis=3",
       "fp16.min_loss_scale=2",
       "fp16.consecutive_hysteresis=true",
       "optimizer.type=Adam",
       "optimizer.params.betas=[0.8, 0.95]",
       "optimizer.params.eps=1e-6",
       "optimizer.params.weight_decay=0.3",
       "optimizer.params.adam_w_mode=false",
       "optimizer.params.no_decay=[\"*bias\"]",
       "scheduler.type=WarmupCosineLR",
       "scheduler.params.warmup_num_steps=4",
       "scheduler.params.warmup_type=linear",
       "scheduler.params.total_num_steps=9",
       "scheduler.params.cos_min_ratio=0.2",
       "scheduler.params.warmup_min_ratio=0.1",
       "zero_optimization.stage=3",
       "zero_optimization.offload_optimizer={\"ratio\": 0.25, \"pin_memory\": false, \"schedule\": "
       "\"delayed\", "
       "\"warmup_steps\": 1, \"staleness_limit\": 0.25, \"correction\": \"none\", \"prediction\": 1.5, "
       "\"moment_format\": \"int8\"}",
       "zero_optimization.offload_param={\"device\": \"cpu\", \"buffer_count\": 5}",
       "train={\"epochs\": 1.25, \"order\": \"micro_batch_major\", \"seed\": 18446744073709551615, "
       "\"eval_every\": 2, \"eval_tokens\": 3, \"on_nonfinite\": \"stop\", \"max_skipped_in_a_row\": 4}",
       "activation_checkpointing.policy=keep",
       "model={\"config\": {\"hidden_size\": 64, \"rope\": {\"theta\": 1e4}}, \"tokenizer\": \"tok\", "
       "\"mmap\": true, \"freeze\": [\"*norm*\"]}",
       "data={\"train\": [\"a\", \"b\"], \"eval\": \"e\", \"format\": \"bytes\", \"sequence_length\": 5, "
       "\"shuffle\": false}",
       "checkpoint={\"every\": 2, \"keep\": 8, \"keep_best\": true, \"states\": false}",
       "trace={\"enabled\": true, \"start_step\": 2, \"steps\": 4}",
       "device={\"kind\": \"host\", \"memory_limit\": \"1GiB\", \"reserve\": 0, \"threads\": 2, "
       "\"isa\": \"scalar\", \"chaos_seed\": 11}"});
}

TEST(ConfigResolved, IsAConfigAgainFromAnyFolder) {
  for (const Config& config : {with({}), unusual(),
                               with({"data.eval_split=0.25", "zero_optimization.cpu_offload=true",
                                     "scheduler={\"type\": \"WarmupLR\", \"params\": "
                                     "{\"warmup_max_lr\": 0.5, \"warmup_min_lr\": 0.125}}"})}) {
    const std::string text = json::dump(resolved(config), 2);
    const Config again = config_from_text(text, "again.json", "/elsewhere");
    EXPECT_TRUE(differences(config, again).empty());
    EXPECT_EQ(json::dump(resolved(again), 2), text);
    EXPECT_TRUE(again.ignored.empty());
  }
}

TEST(ConfigResolved, HoldsDerivedValues) {
  const json::Value value =
      resolved(with({"zero_optimization.cpu_offload=true", "train_micro_batch_size_per_gpu=2"}));
  EXPECT_EQ(*value.find("gradient_accumulation_steps"), json::Value(4));
  EXPECT_EQ(*value.find("zero_optimization")->find("stage"), json::Value(1));
  EXPECT_EQ(*value.find("zero_optimization")->find("offload_optimizer")->find("device"), json::Value("cpu"));
  EXPECT_EQ(*value.find("device")->find("reserve"), json::Value(536870912));
  EXPECT_EQ(*value.find("data")->find("train"), json::Value(json::Array{"/base/t.bin"}));
  EXPECT_EQ(value.find("zero_optimization")->find("cpu_offload"), nullptr);
}

TEST(ConfigResolved, UnusualValuesDifferFromEveryDefault) {
  // Every key of the resolved default config must differ, or the round trip above would not see that key
  // lost.
  std::vector<std::string> same;
  const auto changed = differences(with({}), unusual());
  const auto walk = [&](auto&& self, const json::Value& value, const std::string& path) -> void {
    for (const json::Member& member : *value.object()) {
      const std::string key = json::join_path(path, member.key);
      if (member.value.is_object())
        self(self, member.value, key);
      else if (std::none_of(changed.begin(), changed.end(),
                            [&](const Difference& d) { return d.key == key; }))
        same.push_back(key);
    }
  };
  walk(walk, resolved(with({})), "");
  // The lr, batch and folder are the minimal config's own; bf16 excludes fp16, and split and ulp8
  // masters need it; eval excludes eval_split.
  EXPECT_EQ(same, (std::vector<std::string>{"output_dir", "train_batch_size", "data.eval_split",
                                            "bf16.enabled", "optimizer.params.lr",
                                            "zero_optimization.offload_optimizer.master_format"}));
}

TEST(ConfigDifferences, AreListedKeyByKey) {
  const Config a = with({}),
               b = with({"optimizer.params.lr=0.5", "scheduler.type=WarmupLR", "train={\"epochs\": 2}"});
  std::vector<std::string> lines;
  for (const Difference& d : differences(a, b)) lines.push_back(d.key + ": " + d.before + " -> " + d.after);
  const std::vector<std::string> expected = {
      "optimizer.params.lr: 0.001 -> 0.5",
      "scheduler.type: \"constant\" -> \"WarmupLR\"",
      "scheduler.params.warmup_num_steps: absent -> 1000",
      "scheduler.params.warmup_type: absent -> \"log\"",
      "scheduler.params.warmup_min_lr: absent -> 0.0",
      "train.steps: 10 -> absent",
      "train.epochs: absent -> 2.0",
  };
  EXPECT_EQ(lines, expected);
  EXPECT_TRUE(differences(a, a).empty());
}

TEST(ConfigDifferences, LookIntoModelConfig) {
  const auto config = [](const std::string& keys) { return with({"model={\"config\": {" + keys + "}}"}); };
  const auto found = differences(config("\"hidden_size\": 64, \"layers\": 2"),
                                 config("\"layers\": 2, \"hidden_size\": 128, \"x\": 1"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].key, "model.config.hidden_size");
  EXPECT_EQ(found[0].before, "64");
  EXPECT_EQ(found[0].after, "128");
  EXPECT_EQ(found[1].key, "model.config.x");
}

}  // namespace
}  // namespace tandem
