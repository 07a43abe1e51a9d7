// One key at a time: defaults, kinds, ranges, what is not supported yet.
#include <gtest/gtest.h>

#include "config_testing.h"
#include "core/run/config_fields.h"

namespace tandem {
namespace {

using namespace config_testing;

TEST(ConfigDefaults, AreTheDocumentedOnes) {
  const Config c = with({});
  EXPECT_EQ(c.train_batch_size, 8);
  EXPECT_EQ(c.micro_batch_size, 8);
  EXPECT_EQ(c.accumulation_steps, 1);
  EXPECT_EQ(c.gradient_clipping, 0);
  EXPECT_EQ(c.steps_per_print, 10);
  EXPECT_FALSE(c.bf16_enabled || c.fp16_enabled);
  EXPECT_EQ(c.dtype(), DType::f32);
  EXPECT_EQ(c.fp16.fixed, 0);
  EXPECT_EQ(c.fp16.initial_scale_power, 16);
  EXPECT_EQ(c.fp16.window, 1000);
  EXPECT_EQ(c.fp16.hysteresis, 2);
  EXPECT_EQ(c.fp16.min_scale, 1);
  EXPECT_FALSE(c.fp16.consecutive_hysteresis);
  EXPECT_EQ(c.optimizer.type, Config::Optimizer::Type::adamw);
  EXPECT_EQ(c.optimizer.lr, 1e-3);
  EXPECT_EQ(c.optimizer.betas, (std::array<double, 2>{0.9, 0.999}));
  EXPECT_EQ(c.optimizer.eps, 1e-8);
  EXPECT_EQ(c.optimizer.weight_decay, 0);
  EXPECT_TRUE(c.optimizer.adam_w_mode);
  EXPECT_TRUE(c.optimizer.no_decay.empty());
  EXPECT_EQ(c.scheduler.type, ScheduleType::constant);
  EXPECT_EQ(c.scheduler.warmup_num_steps, 1000);
  EXPECT_EQ(c.scheduler.warmup_type, WarmupType::log);
  EXPECT_EQ(c.scheduler.warmup_min_lr, 0);
  EXPECT_FALSE(c.scheduler.warmup_max_lr || c.scheduler.total_num_steps);
  EXPECT_EQ(c.scheduler.cos_min_ratio, 1e-4);
  EXPECT_EQ(c.scheduler.warmup_min_ratio, 0);
  EXPECT_EQ(c.zero_stage, 0);
  EXPECT_FALSE(c.offloads_optimizer());
  EXPECT_FALSE(c.offload_optimizer.ratio.has_value());
  EXPECT_TRUE(c.offload_optimizer.pin_memory);
  EXPECT_EQ(c.offload_optimizer.schedule, Config::OffloadOptimizer::Schedule::synchronous);
  EXPECT_EQ(c.offload_optimizer.warmup_steps, 40);
  EXPECT_EQ(c.offload_optimizer.staleness_limit, 0);
  EXPECT_EQ(c.offload_optimizer.correction, Config::OffloadOptimizer::Correction::predict);
  EXPECT_EQ(c.offload_optimizer.prediction, 1);
  EXPECT_EQ(c.train.order, Config::Train::Order::layer_major);
  EXPECT_EQ(c.train.steps, 10);
  EXPECT_FALSE(c.train.epochs.has_value());
  EXPECT_EQ(c.train.seed, 1u);
  EXPECT_EQ(c.train.eval_every, 0);
  EXPECT_EQ(c.train.eval_tokens, 0);
  EXPECT_EQ(c.train.on_nonfinite, Config::Train::OnNonfinite::skip);
  EXPECT_EQ(c.train.max_skipped_in_a_row, 20);
  EXPECT_EQ(c.activation_policy, Config::ActivationPolicy::automatic);
  EXPECT_EQ(c.model.path, "/base/m");
  EXPECT_TRUE(c.model.config.is_null());
  EXPECT_FALSE(c.model.tokenizer.has_value());
  EXPECT_EQ(c.data.train, std::vector<std::string>{"/base/t.bin"});
  EXPECT_TRUE(c.data.eval.empty());
  EXPECT_EQ(c.data.eval_split, 0);
  EXPECT_EQ(c.data.format, TokenFormat::automatic);
  EXPECT_EQ(c.data.sequence_length, 77);
  EXPECT_TRUE(c.data.shuffle);
  EXPECT_EQ(c.checkpoint.every, 0);
  EXPECT_EQ(c.checkpoint.keep, 2);
  EXPECT_EQ(c.device.kind, "auto");
  EXPECT_FALSE(c.device.memory_limit || c.device.chaos_seed);
  EXPECT_EQ(c.device.reserve, 536870912u);
  EXPECT_EQ(c.device.threads, 0);
  EXPECT_EQ(c.device.isa, "auto");
  EXPECT_TRUE(c.ignored.empty());
}

TEST(ConfigValues, EveryEnumeratorHasItsName) {
  using Offload = Config::OffloadOptimizer;
  EXPECT_EQ(with({"optimizer.type=Adam"}).optimizer.type, Config::Optimizer::Type::adam);
  EXPECT_EQ(with({"scheduler.type=WarmupLR"}).scheduler.type, ScheduleType::warmup);
  EXPECT_EQ(with({"scheduler.type=WarmupDecayLR"}).scheduler.type, ScheduleType::warmup_decay);
  EXPECT_EQ(with({"scheduler.type=WarmupCosineLR"}).scheduler.type, ScheduleType::warmup_cosine);
  EXPECT_EQ(with({"scheduler.params.warmup_type=linear"}).scheduler.warmup_type, WarmupType::linear);
  EXPECT_EQ(with({"train.order=micro_batch_major"}).train.order, Config::Train::Order::micro_batch_major);
  EXPECT_EQ(with({"train.on_nonfinite=stop"}).train.on_nonfinite, Config::Train::OnNonfinite::stop);
  EXPECT_EQ(with({"activation_checkpointing.policy=keep"}).activation_policy, Config::ActivationPolicy::keep);
  EXPECT_EQ(with({"data.format=llmc"}).data.format, TokenFormat::llmc);
  EXPECT_EQ(with({"data.format=nanogpt"}).data.format, TokenFormat::nanogpt);
  EXPECT_EQ(with({"data.format=megatron"}).data.format, TokenFormat::megatron);
  EXPECT_EQ(with({"data.format=llmq"}).data.format, TokenFormat::llmq);
  EXPECT_EQ(with({"data.format=bytes"}).data.format, TokenFormat::bytes);
  const Config c = with({"zero_optimization.offload_optimizer.schedule=delayed",
                         "zero_optimization.offload_optimizer.correction=none"});
  EXPECT_EQ(c.offload_optimizer.schedule, Offload::Schedule::delayed);
  for (const auto& [name, schedule] :
       {std::pair{"exact", Offload::Schedule::exact}, {"synchronous", Offload::Schedule::synchronous}})
    EXPECT_EQ(with({fmt::format("zero_optimization.offload_optimizer.schedule={}", name)})
                  .offload_optimizer.schedule,
              schedule);
  EXPECT_EQ(c.offload_optimizer.correction, Offload::Correction::none);
  for (const MasterFormat format : {MasterFormat::fp32, MasterFormat::split, MasterFormat::ulp8})
    EXPECT_EQ(with({"bf16.enabled=true",
                    fmt::format("zero_optimization.offload_optimizer.master_format={}", row_of(format).name)})
                  .offload_optimizer.masters,
              format);
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8})
    EXPECT_EQ(with({fmt::format("zero_optimization.offload_optimizer.moment_format={}", row_of(format).name)})
                  .offload_optimizer.moments,
              format);
  EXPECT_EQ(with({"bf16.enabled=true"}).dtype(), DType::bf16);
  EXPECT_EQ(with({"fp16.enabled=true"}).dtype(), DType::f16);
}

TEST(ConfigValues, RangesHoldAtBothEdges) {
  struct Case {
    std::string key;
    std::vector<std::string> good, bad;
  };
  const std::string offload = "zero_optimization.offload_optimizer.", cosine = "scheduler.params.";
  const Case cases[] = {
      {"train_batch_size",
       {"1", "2147483647", "5e8", "5.0e8"},
       {"0", "-1", "2147483648", "1e30", "1.5", "\"8\"", "null"}},
      {"gradient_clipping", {"0", "1e9"}, {"-1e-9", "true"}},
      {"steps_per_print", {"1"}, {"0"}},
      {"fp16.loss_scale", {"0", "128.5"}, {"-1"}},
      {offload + "staleness_limit", {"0", "0.1"}, {"-0.1", "\"off\""}},
      {"fp16.initial_scale_power", {"0", "127"}, {"-1", "128"}},
      {"fp16.loss_scale_window", {"1"}, {"0"}},
      {"fp16.hysteresis", {"1"}, {"0"}},
      {"fp16.min_loss_scale", {"1"}, {"0", "0.5"}},
      {"optimizer.params.lr", {"1e-30"}, {"0", "-1", "\"1e-3\""}},
      {"optimizer.params.betas",
       {"[0, 0]", "[0.999, 0]"},
       {"[1, 0.9]", "[0.9, -0.1]", "[0.9]", "[0.9, 0.9, 0.9]", "0.9"}},
      {"optimizer.params.eps", {"1e-30"}, {"0"}},
      {"optimizer.params.weight_decay", {"0"}, {"-0.1"}},
      {"optimizer.params.no_decay", {"[]", "[\"*norm*\"]"}, {"\"*\"", "[1]", "[\"\"]"}},
      {cosine + "warmup_num_steps", {"0"}, {"-1"}},
      {cosine + "total_num_steps", {"1"}, {"0"}},
      {cosine + "warmup_min_lr", {"0"}, {"-1"}},
      {cosine + "warmup_max_lr", {"0"}, {"-1"}},
      {cosine + "cos_min_ratio", {"0", "1"}, {"-0.1", "1.1"}},
      {cosine + "warmup_min_ratio", {"0", "1"}, {"-0.1", "1.1"}},
      {"zero_optimization.stage", {"0", "3"}, {"-1", "4"}},
      {offload + "ratio", {"0", "0.5", "1"}, {"-0.1", "1.1", "\"half\""}},
      {offload + "warmup_steps", {"0"}, {"-1"}},
      {offload + "prediction", {"0", "2"}, {"-1"}},
      {offload + "pin_memory", {"false"}, {"1", "\"false\""}},
      {"train.seed", {"0", "18446744073709551615"}, {"-1", "18446744073709551616", "1.5"}},
      {"train.eval_every", {"0"}, {"-1"}},
      {"train.eval_tokens", {"0", "1000000000000"}, {"-1"}},
      {"train.max_skipped_in_a_row", {"1"}, {"0"}},
      {"data.eval_split", {"0", "0.5"}, {"-0.1", "0.51"}},
      {"data.sequence_length", {"1"}, {"0", "15099494.4"}},
      {"data.train",
       {"\"a\"", "[\"a\", \"b\"]"},
       {"[]", "\"\"", "[\"\"]", "5", "[{\"path\": \"a\", \"weight\": 1}]"}},
      {"data.eval", {"null", "\"a\"", "[\"a\"]"}, {"5"}},
      {"checkpoint.every", {"0"}, {"-1"}},
      {"checkpoint.keep", {"1"}, {"0"}},
      {"device.memory_limit",
       {"null", "1", "\"24GiB\"", "\"24GB\"", "5e8"},
       {"0", "-1", "\"24G\"", "\"\"", "1e30", "0.5"}},
      {"device.reserve", {"0", "\"0GiB\""}, {"null", "-1"}},
      {"device.threads", {"0", "64"}, {"-1", "\"2\""}},
      {"device.chaos_seed", {"null", "0"}, {"-1"}},
      {"device.kind",
       {"host", "cuda", "cuda:0", "cuda:12"},
       {"cuda:", "cuda:x", "cpu", "", "paced", "null", "7"}},
      {"device.isa", {"scalar", "avx2", "avx512", "neon"}, {"sse", "null"}},
      {"output_dir", {"x"}, {"\"\"", "5"}},
  };
  for (const Case& c : cases) {
    for (const std::string& value : c.good)
      EXPECT_EQ(errors_with({c.key + "=" + value}), std::vector<std::string>{}) << c.key << "=" << value;
    for (const std::string& value : c.bad) {
      const std::string error = error_with({c.key + "=" + value});
      EXPECT_NE(error.find("| --set " + c.key), error.npos) << c.key << "=" << value << ": " << error;
      EXPECT_NE(error.find(c.key), error.npos) << error;
    }
  }
}

TEST(ConfigValues, IntegersMayBeWrittenAsWholeReals) {
  const Config c = with({"train_batch_size=5.0e2", "device.memory_limit=5e8", "train.seed=7.0"});
  EXPECT_EQ(c.train_batch_size, 500);
  EXPECT_EQ(c.device.memory_limit, 500000000u);
  EXPECT_EQ(c.train.seed, 7u);
}

TEST(ConfigValues, WhatIsNotThereYetIsRefusedByName) {
  struct Case {
    std::string set, error;  ///< error empty: accepted
  };
  const std::string offload = "zero_optimization.offload_optimizer.",
                    param = "zero_optimization.offload_param";
  const Case cases[] = {
      {offload + "device=nvme",
       offload + "device \"nvme\" is not supported yet | --set " + offload + "device | \"none\" or \"cpu\""},
      {offload + "master_format=split", "so weights must be bfloat16"},
      {offload + "moment_format=int8", ""},
      {offload + "ratio=0.5", ""},
      {param + ".device=nvme", "\"nvme\" is not supported yet"},
      {param + ".device=none", ""},
      {param + "={\"device\": \"none\", \"buffer_count\": 3, \"pin_memory\": true}", ""},
      {"activation_checkpointing.policy=auto", ""},
      {"activation_checkpointing.policy=recompute_offload", ""},
      {"activation_checkpointing.keep_blocks=0", ""},
      {"activation_checkpointing.keep_blocks=2", "keep_blocks 2 is not supported yet"},
      {"activation_checkpointing.cpu_checkpointing=false", ""},
      {"activation_checkpointing.cpu_checkpointing=true", ""},
      {"tensorboard.enabled=true", "tensorboard.enabled true is not supported yet"},
      {"tensorboard.enabled=false", ""},
      {"tensorboard.output_path=x", "not supported yet"},
      {"model.freeze=[]", ""},
      {"model.freeze=[\"*norm*\"]", ""},
      {"data.train=[{\"path\": \"a\", \"weight\": 1}]", "weights of data files are not supported yet"},
      {"data.packing=documents", "\"documents\" is not supported yet"},
      {"data.packing=stream", ""},
      {"train.watchdog_seconds=0", ""},
      {"train.watchdog_seconds=60", "not supported yet"},
      {"checkpoint.states=false", ""},
      {"device.kind=paced", "device.kind \"paced\" is not supported yet"},
      {"device.hardware=null", ""},
      {"device.hardware=h200", "not supported yet"},
      {"data_types.grad_accum_dtype=fp32", ""},
      {"data_types.grad_accum_dtype=bf16", "data_types.grad_accum_dtype \"bf16\" is not supported"},
      {"optimizer.type=Lion",
       "optimizer.type \"Lion\" is not supported | --set optimizer.type | \"AdamW\" or \"Adam\""},
      {"scheduler.type=OneCycle", "scheduler.type \"OneCycle\" is not supported"},
      {"optimizer.params.bias_correction=true", ""},
      {"optimizer.params.bias_correction=false", "optimizer.params.bias_correction false is not supported"},
  };
  for (const Case& c : cases) {
    if (c.error.empty())
      EXPECT_EQ(errors_with({c.set}), std::vector<std::string>{}) << c.set;
    else
      EXPECT_NE(error_with({c.set}).find(c.error), std::string::npos) << c.set << ": " << error_with({c.set});
  }
}

TEST(ConfigValues, PathsAreRelativeToTheConfigAndOutputToTheWorkingDirectory) {
  const Config c = with({"data.train=[\"a/b\", \"../c\", \"/d\"]", "data.eval=e", "model.tokenizer=tok"});
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"/base/a/b", "/c", "/d"}));
  EXPECT_EQ(c.data.eval, std::vector<std::string>{"/base/e"});
  EXPECT_EQ(c.model.tokenizer, "/base/tok");
  EXPECT_EQ(c.output_dir, (std::filesystem::current_path() / "out").string());
}

TEST(ConfigValues, ModelConfigIsAnObjectOrAPath) {
  std::string text(minimal());
  const std::string model = "\"model\": {\"path\": \"m\"}";
  text.replace(text.find(model), model.size(), "\"model\": {\"config\": {\"hidden_size\": \"64\"}}");
  const Config c = read(text);
  try {
    (void)c.model_config().at("hidden_size").as_i64();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "c.json:5:39 (model.config.hidden_size)");
  }
  EXPECT_EQ(*read(text, {"model.config=x/config.json"}).model.config.string(), "/base/x/config.json");
  EXPECT_EQ(read(text, {"model.config.hidden_size=128"}).model_config().at("hidden_size").as_i64(), 128);
}

TEST(ConfigFields, TheTableIsWhole) {
  for (const Field& field : config_fields()) {
    EXPECT_EQ(find_field(field.key), &field) << field.key << " stands twice";
    EXPECT_FALSE(field.meaning.empty()) << field.key;
    EXPECT_EQ(field.kind == FieldKind::choice, !field.choices.empty()) << field.key;
    EXPECT_FALSE(field.later && field.slot.set) << field.key << " is refused, so nothing can be stored";
    EXPECT_TRUE(!field.fallback.empty() || field.required || !field.default_text.empty()) << field.key;
    if (field.fallback.empty()) continue;
    const json::Document fallback = json::parse(field.fallback, "fallback");
    Field now = field;
    now.later = false;
    EXPECT_NO_THROW(normalised(now, json::Node(fallback, std::string(field.key)), "/")) << field.key;
  }
}

}  // namespace
}  // namespace tandem
