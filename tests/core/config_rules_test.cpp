// Combinations of keys.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config_testing.h"

namespace tandem {
namespace {

using namespace config_testing;
using Strings = std::vector<std::string>;

/// A config with these batch keys (total, micro, accumulation; 0: not given).
std::string batch_text(int total, int micro, int accumulation) {
  std::string text = R"({"output_dir": "o", "optimizer": {"params": {"lr": 1}}, "model": {"path": "m"},)"
                     R"("data": {"train": "t", "sequence_length": 7}, "train": {"steps": 1})";
  if (total > 0) text += ", \"train_batch_size\": " + std::to_string(total);
  if (micro > 0) text += ", \"train_micro_batch_size_per_gpu\": " + std::to_string(micro);
  if (accumulation > 0) text += ", \"gradient_accumulation_steps\": " + std::to_string(accumulation);
  return text + "}";
}

TEST(ConfigBatch, DerivesWhatIsNotGiven) {
  const int cases[][6] = {
      // total, micro, accumulation given -> total, micro, accumulation
      {8, 0, 0, 8, 8, 1},   {0, 3, 0, 3, 3, 1},   {0, 3, 4, 12, 3, 4}, {12, 3, 0, 12, 3, 4},
      {12, 0, 4, 12, 3, 4}, {12, 3, 4, 12, 3, 4}, {4, 4, 0, 4, 4, 1},
  };
  for (const auto& c : cases) {
    const Config config = read(batch_text(c[0], c[1], c[2]));
    EXPECT_EQ(config.train_batch_size, c[3]);
    EXPECT_EQ(config.micro_batch_size, c[4]);
    EXPECT_EQ(config.accumulation_steps, c[5]);
  }
}

TEST(ConfigBatch, RefusesWhatDoesNotDivide) {
  struct Case {
    int total, micro, accumulation;
    std::string what, hint;
  };
  const Case cases[] = {
      {10, 4, 0,
       "train_batch_size 10 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps x 1 rank",
       "8 or 12"},
      {2, 4, 0,
       "train_batch_size 2 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps x 1 rank",
       "4"},
      {10, 0, 4,
       "train_batch_size 10 is not train_micro_batch_size_per_gpu x gradient_accumulation_steps 4 x 1 rank",
       "8 or 12"},
      {10, 3, 4,
       "train_batch_size 10 is not train_micro_batch_size_per_gpu 3 x gradient_accumulation_steps 4 x 1 rank "
       "= 12",
       "12; or 9 or 12 without gradient_accumulation_steps"},
      {0, 0, 4, "gradient_accumulation_steps 4 alone does not give the batch size (1 rank)",
       "train_batch_size or train_micro_batch_size_per_gpu"},
      {0, 0, 0,
       "none of train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps is given (1 "
       "rank)",
       "train_batch_size or train_micro_batch_size_per_gpu"},
  };
  for (const Case& c : cases) {
    const Strings errors = errors_in(batch_text(c.total, c.micro, c.accumulation));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_TRUE(errors[0].starts_with(c.what + " | c.json:1:")) << errors[0];
    EXPECT_TRUE(errors[0].ends_with(" | " + c.hint)) << errors[0];
  }
}

TEST(ConfigBatch, AWrongNumberIsOneErrorOnly) {
  EXPECT_EQ(errors_with({"train_micro_batch_size_per_gpu=0"}).size(), 1u);
  EXPECT_EQ(errors_with({"train.steps=-1"}).size(), 1u) << "not also \"neither steps nor epochs\"";
  EXPECT_EQ(errors_with({"optimizer=5"}).size(), 1u) << "not also \"lr is missing\"";
}

TEST(ConfigRules, OffloadSectionAndStage) {
  const std::string section = "zero_optimization.offload_optimizer";
  EXPECT_TRUE(with({section + "={}"}).offloads_optimizer());
  EXPECT_TRUE(with({section + ".device=cpu"}).offloads_optimizer());
  EXPECT_TRUE(with({"zero_optimization.cpu_offload=true"}).offloads_optimizer());
  EXPECT_FALSE(with({"zero_optimization.cpu_offload=false"}).offloads_optimizer());
  EXPECT_FALSE(with({section + ".device=none"}).offloads_optimizer());
  EXPECT_EQ(with({section + "={}"}).zero_stage, 1);
  EXPECT_EQ(with({section + ".device=none"}).zero_stage, 0);
  EXPECT_EQ(with({section + "={}", "zero_optimization.stage=2"}).zero_stage, 2);
  EXPECT_EQ(
      error_with({section + "={}", "zero_optimization.stage=0"}),
      "zero_optimization.stage 0 is below 1, which offload_optimizer needs | --set zero_optimization.stage | "
      "1, 2 or 3, or leave it out");
  EXPECT_NE(error_with({section + ".device=none", "zero_optimization.cpu_offload=true"}).find("contradicts"),
            std::string::npos);
}

TEST(ConfigRules, StreamedWeightsNeedTheOptimizerOnTheHost) {
  const std::string optimizer = "zero_optimization.offload_optimizer={}",
                    section = "zero_optimization.offload_param";
  EXPECT_TRUE(with({optimizer, section + "={}"}).streams_weights());
  EXPECT_TRUE(with({optimizer, section + ".device=cpu"}).streams_weights());
  EXPECT_FALSE(with({optimizer, section + ".device=none"}).streams_weights());
  EXPECT_FALSE(with({optimizer}).streams_weights());
  EXPECT_EQ(with({optimizer, section + "={}"}).zero_stage, 3);
  EXPECT_EQ(with({optimizer, section + "={}"}).offload_param.buffer_count, 3);
  EXPECT_EQ(with({optimizer, section + "={\"buffer_count\": 7}"}).offload_param.buffer_count, 7);
  EXPECT_NE(error_with({optimizer, section + ".buffer_count=1"}).find("buffer_count"), std::string::npos);
  EXPECT_EQ(error_with({section + "={}"}),
            section +
                ".device \"cpu\" needs the optimizer on the host too, and nothing is offloaded | --set " +
                section +
                " | zero_optimization.offload_optimizer.device \"cpu\", or offload_param.device \"none\"");
  EXPECT_EQ(
      error_with({optimizer, section + "={}", "zero_optimization.stage=2"}),
      "zero_optimization.stage 2 is below 3, which offload_param needs | --set zero_optimization.stage | "
      "3, or leave it out");
}

TEST(ConfigRules, AScheduleWithoutOffloadIsSaidToHaveNoEffect) {
  const std::string section = "zero_optimization.offload_optimizer";
  for (const char* schedule : {"exact", "delayed"}) {
    const Config c = with({section + R"(={"device": "none", "schedule": ")" + schedule + "\"}"});
    EXPECT_EQ(c.offload_optimizer.schedule, Config::OffloadOptimizer::Schedule::synchronous);
    ASSERT_EQ(c.ignored.size(), 1u);
    EXPECT_EQ(c.ignored[0].key, section + ".schedule");
  }
}

TEST(ConfigRules, TheScheduleOfAnOffloadedOptimizerIsExact) {
  using Schedule = Config::OffloadOptimizer::Schedule;
  const std::string section = "zero_optimization.offload_optimizer";
  for (const std::string& offloads :
       {section + "={}", section + ".device=cpu", std::string("zero_optimization.cpu_offload=true")})
    EXPECT_EQ(with({offloads}).offload_optimizer.schedule, Schedule::exact);
  const Config none = with({section + ".device=none"});
  EXPECT_EQ(none.offload_optimizer.schedule, Schedule::synchronous);
  EXPECT_TRUE(none.ignored.empty());
}

TEST(ConfigRules, Optimizers) {
  EXPECT_TRUE(with({"optimizer.type=Adam"}).optimizer.adam_w_mode)
      << "as DeepSpeed: decoupled unless told otherwise";
  EXPECT_FALSE(with({"optimizer.type=Adam", "optimizer.params.adam_w_mode=false"}).optimizer.adam_w_mode);
  EXPECT_NE(error_with({"optimizer.params.adam_w_mode=false"}).find("contradicts optimizer.type \"AdamW\""),
            std::string::npos);
}

TEST(ConfigRules, DtypesAndScaling) {
  EXPECT_EQ(error_with({"bf16.enabled=true", "fp16.enabled=true"}),
            "bf16.enabled and fp16.enabled are both true | --set fp16.enabled | false for one of them");
  const Strings stop = {"fp16.enabled=true", "train.on_nonfinite=stop"};
  EXPECT_NE(error_with(stop).find("train.on_nonfinite \"stop\""), std::string::npos);
  EXPECT_EQ(errors_with({stop[0], stop[1], "fp16.loss_scale=128"}), Strings{});
  EXPECT_EQ(errors_with({"bf16.enabled=true", stop[1]}), Strings{});
  EXPECT_NE(error_with({"fp16.initial_scale_power=1", "fp16.min_loss_scale=4"})
                .find("above the first scale, 2^1 = 2"),
            std::string::npos);
  EXPECT_EQ(loss_scaling(with({"bf16.enabled=true"})).fixed, 1);
  EXPECT_EQ(loss_scaling(with({"fp16.enabled=true"})).fixed, 0);
  EXPECT_EQ(loss_scaling(with({"fp16.enabled=true", "fp16.loss_scale=8"})).fixed, 8);
}

TEST(ConfigRules, OneOfTwo) {
  EXPECT_EQ(error_with({"train.epochs=1"}),
            "train.steps and train.epochs are both given | --set train.epochs | leave out one of them");
  EXPECT_EQ(error_with({"train={}"}),
            "neither train.steps nor train.epochs is given | --set train (train.steps) | "
            "train.steps or train.epochs");
  EXPECT_EQ(with({"train={\"epochs\": 0.5}"}).train.epochs, 0.5);
  EXPECT_NE(error_with({"model={}"}).find("neither model.path nor model.config"), std::string::npos);
  EXPECT_NE(error_with({"model.config={}"}).find("are both given"), std::string::npos);
  EXPECT_NE(error_with({"data.eval=e", "data.eval_split=0.1"})
                .find("data.eval_split 0.1 and data.eval are both given"),
            std::string::npos);
  EXPECT_EQ(errors_with({"data.eval=null", "data.eval_split=0.1"}), Strings{});
  EXPECT_EQ(errors_with({"data.eval=e", "data.eval_split=0"}), Strings{});
}

TEST(ConfigMoments, CompactOnesAreOfAnOptimizerOnTheHost) {
  const std::string offload = "zero_optimization.offload_optimizer.", moments = offload + "moment_format";
  EXPECT_EQ(error_with({moments + "=int8", offload + "device=none"}),
            moments + " \"int8\" is of an optimizer on the host, and nothing is offloaded | --set " +
                moments + " | \"fp32\", or " + offload + "device \"cpu\"");
  EXPECT_EQ(errors_with({moments + "=fp32", offload + "device=none"}), Strings{});
}

TEST(ConfigCheckpoint, TheBestIsOnlyKeptWhereEveryEvaluationIsOnASave) {
  const auto with_best = [](const std::string& every, const std::string& eval_every, bool eval_set = true) {
    Strings sets = {"checkpoint.keep_best=true", "checkpoint.every=" + every,
                    "train.eval_every=" + eval_every};
    if (eval_set) sets.push_back("data.eval_split=0.1");
    return error_with(sets);
  };
  const auto none = error_with({});
  EXPECT_EQ(with_best("10", "10"), none);
  EXPECT_EQ(with_best("10", "30"), none);
  EXPECT_EQ(with_best("10", "10", false),
            "checkpoint.keep_best needs evaluations, and there is no eval set | --set checkpoint.keep_best | "
            "data.eval or data.eval_split");
  EXPECT_EQ(with_best("10", "25"),
            "checkpoint.keep_best needs every evaluation on a save, but train.eval_every is 25 and "
            "checkpoint.every is 10 | --set checkpoint.keep_best | train.eval_every 20 or 30");
  EXPECT_NE(with_best("10", "0").find("train.eval_every 10"), std::string::npos);
  EXPECT_NE(with_best("0", "20").find("checkpoint.every 20"), std::string::npos);
}

TEST(ConfigRules, CpuCheckpointing) {
  const std::string cpu = "activation_checkpointing.cpu_checkpointing=true";
  const std::string policy = "activation_checkpointing.policy=";
  for (const char* other : {"keep", "recompute"})
    EXPECT_EQ(error_with({cpu, policy + other}),
              fmt::format("activation_checkpointing.cpu_checkpointing true contradicts "
                          "activation_checkpointing.policy \"{}\" | --set "
                          "activation_checkpointing.cpu_checkpointing | leave out "
                          "activation_checkpointing.cpu_checkpointing",
                          other));
  const auto kOffload = Config::ActivationPolicy::recompute_offload;
  EXPECT_EQ(with({cpu}).activation_policy, kOffload);
  EXPECT_EQ(with({cpu, policy + "recompute_offload"}).activation_policy, kOffload);
  EXPECT_EQ(with({policy + "recompute_offload"}).activation_policy, kOffload);
  EXPECT_EQ(with({"activation_checkpointing.cpu_checkpointing=false", policy + "keep"}).activation_policy,
            Config::ActivationPolicy::keep);
}

TEST(ConfigRules, ScheduleKeysThatTheTypeDoesNotReadAreSaid) {
  const Strings params = {
      "scheduler.params={\"warmup_num_steps\": 5, \"warmup_max_lr\": 1, \"total_num_steps\": 9, "
      "\"cos_min_ratio\": 0.1}"};
  const auto ignored = [&](const std::string& type) {
    Strings keys;
    for (const IgnoredKey& key : with({params[0], "scheduler.type=" + type}).ignored) keys.push_back(key.key);
    return keys;
  };
  EXPECT_EQ(ignored("constant").size(), 4u);
  EXPECT_EQ(ignored("WarmupLR"),
            (Strings{"scheduler.params.total_num_steps", "scheduler.params.cos_min_ratio"}));
  EXPECT_EQ(ignored("WarmupDecayLR"), Strings{"scheduler.params.cos_min_ratio"});
  EXPECT_EQ(ignored("WarmupCosineLR"), Strings{"scheduler.params.warmup_max_lr"});
}

TEST(ConfigRules, ScheduleTakesItsDefaultsFromTheRun) {
  ScheduleConfig s = schedule_of(with({"scheduler.type=WarmupDecayLR"}), 500);
  EXPECT_EQ(s.type, ScheduleType::warmup_decay);
  EXPECT_EQ(s.lr, 1e-3);
  EXPECT_EQ(s.max_lr, 1e-3);
  EXPECT_EQ(s.total_steps, 500);
  EXPECT_EQ(s.warmup_steps, 1000);
  s = schedule_of(with({"scheduler={\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 50, "
                        "\"warmup_max_lr\": 2, "
                        "\"warmup_min_lr\": 0.5, \"warmup_num_steps\": 3, \"warmup_type\": \"linear\"}}"}),
                  500);
  EXPECT_EQ(s.max_lr, 2);
  EXPECT_EQ(s.min_lr, 0.5);
  EXPECT_EQ(s.total_steps, 50);
  EXPECT_EQ(s.warmup_steps, 3);
  EXPECT_EQ(s.warmup_type, WarmupType::linear);
  for (const char* warmup : {"0", "1", "10", "11"})
    EXPECT_GT(lr_at(schedule_of(with({"scheduler.type=WarmupDecayLR",
                                      std::string("scheduler.params.warmup_num_steps=") + warmup}),
                                10),
                    0),
              0.0);
}

}  // namespace
}  // namespace tandem
