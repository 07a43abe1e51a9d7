// Keys, places, hints: what a config that is wrong gets to hear, all of it at once.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config_testing.h"

namespace tandem {
namespace {

using namespace config_testing;
using Strings = std::vector<std::string>;

TEST(ConfigErrors, UnknownKeysNameTheNearestValidOne) {
  struct Case {
    std::string key, hint;
  };
  const Case cases[] = {
      {"gradient_cliping", "gradient_clipping"},
      {"Train_Batch_Size", "train_batch_size"},
      {"train-batch-size", "train_batch_size"},
      {"num-epochs", "train.epochs"},
      {"lr", "optimizer.params.lr, where this key belongs"},
      {"optimizer.lr", "optimizer.params.lr, where this key belongs"},
      {"optimizer.params.learning_rat", "the nearest key is"},
      {"optimiser", "optimizer"},
      {"train.step", "train.steps"},
      {"train.sequence_length", "data.sequence_length, where this key belongs"},
      {"scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps"},
      {"train.warmup_steps", "zero_optimization.offload_optimizer.warmup_steps, where this key belongs"},
      {"scheduler.params.warmup_num_step", "scheduler.params.warmup_num_steps"},
      {"zero_optimization.offload_optimizer.divice", "zero_optimization.offload_optimizer.device"},
      {"zero_optimisation", "zero_optimization"},
      {"fp16.enable", "fp16.enabled"},
      {"train.max_steps", "train.steps"},
      {"xyzzy", "the nearest key is"},
      {"data.train.path", ""},
  };
  for (const Case& c : cases) {
    const std::string error = error_with({c.key + "=1"});
    if (c.key == "data.train.path") {
      EXPECT_NE(error.find("data.train.path lies in something that is no object"), error.npos) << error;
      continue;
    }
    EXPECT_TRUE(error.starts_with("unknown key \"" + c.key + "\" | --set " + c.key + " | " + c.hint))
        << error;
  }
}

TEST(ConfigErrors, AreAllFoundInOnePassWithTheirPlaces) {
  const char* text = R"({
  // a comment, and nine mistakes
  "output_dir": "out",
  "train_batch_size": 10, "train_micro_batch_size_per_gpu": 4,
  "gradient_cliping": 1.0,
  "bf16": {"enabled": true}, "fp16": {"enabled": true, "hysteresis": 0},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": "auto"}},
  "scheduler": [],
  "model": {"path": "m", "config": {"hidden_size": 64}},
  "data": {"train": "t.bin", "train": "u.bin"},
  "train": {"steps": 10},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}
})";
  const Strings expected = {
      "the key \"train\" is there twice (first at 10:12) | c.json:10:30 (data.train) | keep one of them",
      "unknown key \"gradient_cliping\" | c.json:5:3 (gradient_cliping) | gradient_clipping",
      "scheduler must be an object, but is an array | c.json:8:16 (scheduler) | ",
      "data.sequence_length is missing | c.json:10:11 (data.sequence_length) | an integer >= 1",
      "fp16.hysteresis must be an integer >= 1, but is 0 | c.json:6:70 (fp16.hysteresis) | ",
      "optimizer.params.lr is \"auto\", which nothing resolves here | c.json:7:51 (optimizer.params.lr) | a "
      "number > 0",
      "optimizer.params.weight_decay is \"auto\", which nothing resolves here | c.json:7:75 "
      "(optimizer.params.weight_decay) | a number >= 0, or leave it out",
      "train_batch_size 10 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps x 1 rank | "
      "c.json:4:23 (train_batch_size) | 8 or 12",
      "model.path and model.config are both given | c.json:9:36 (model.config) | leave out one of them",
      "bf16.enabled and fp16.enabled are both true | c.json:6:50 (fp16.enabled) | false for one of them",
  };
  EXPECT_EQ(errors_in(text), expected);
  try {
    read(text);
    FAIL();
  } catch (const ErrorList& list) {
    EXPECT_EQ(list.status(), Status::usage);
    EXPECT_NE(std::string(list.what()).find("\n  at: c.json:4:23 (train_batch_size)\n  try: 8 or 12\n"),
              std::string::npos);
    EXPECT_TRUE(std::string(list.what()).ends_with("\n10 errors"));
  }
}

TEST(ConfigErrors, ADottedKeyIsNotTakenForASection) {
  std::string text(minimal());
  text.insert(text.rfind('}'), ", \"data.shuffle\": false");
  EXPECT_EQ(errors_in(text),
            Strings{"the key \"data.shuffle\" has a dot | c.json:8:3 | \"data\": {\"shuffle\": ...}"});
}

TEST(ConfigErrors, TextsThatAreNoConfig) {
  const std::pair<std::string, std::string> cases[] = {
      {"[1]", "a config must be an object, but is an array | c.json:1:1 | "},
      {"\"x\"", "a config must be an object, but is \"x\" | c.json:1:1 | "},
      {"", "the file is empty | c.json | "},
      {"{\"train\": {\"steps\": 5,}}", "a comma stands before '}' | c.json:1:23 | "},
      {"\xEF\xBB\xBF{}", "the file begins with a byte-order mark (BOM) | c.json:1:1 | "},
      {"{\"gradient_clipping\": NaN}", "NaN is not a JSON number | c.json:1:23 | "},
      {std::string(1 << 20, '['), "arrays and objects are nested deeper than 64 levels | c.json:1:65 | "},
  };
  for (const auto& [text, error] : cases) {
    const Strings errors = errors_in(text);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_TRUE(errors[0].starts_with(error)) << errors[0];
  }
  const Strings nothing_given = errors_in("{}");
  EXPECT_EQ(nothing_given.size(), 7u) << "output_dir, lr, data.train, sequence_length, batch, model, steps";
  EXPECT_EQ(errors_in("{}", {}, ConfigUse::evaluate).size(), 6u) << "no output_dir needed";
}

TEST(ConfigErrors, AutoIsFineOnKeysWithoutEffect) {
  const Config c =
      with({"zero_optimization.reduce_bucket_size=auto", "zero_optimization.stage3_prefetch_bucket_size=auto",
            "optimizer.params.torch_adam=auto", "sparse_gradients=auto"});
  EXPECT_EQ(c.ignored.size(), 4u);
  for (const char* key :
       {"train_batch_size", "optimizer.params.betas", "optimizer.type", "zero_optimization.stage",
        "bf16.enabled", "data.train", "output_dir", "scheduler.params.total_num_steps"}) {
    const std::string error = error_with({std::string(key) + "=auto"});
    EXPECT_TRUE(error.starts_with(std::string(key) + " is \"auto\", which nothing resolves here | --set "))
        << error;
  }
}

TEST(ConfigErrors, DeepSpeedKeysAreAcceptedOrRefusedByName) {
  const char* accepted[] = {"wall_clock_breakdown",
                            "prescale_gradients",
                            "gradient_predivide_factor",
                            "sparse_gradients",
                            "communication_data_type",
                            "zero_allow_untested_optimizer",
                            "zero_force_ds_cpu_optimizer",
                            "dump_state",
                            "memory_breakdown",
                            "checkpoint.tag_validation",
                            "checkpoint.load_universal",
                            "checkpoint.use_node_local_storage",
                            "checkpoint.parallel_write",
                            "zero_optimization.contiguous_gradients",
                            "zero_optimization.overlap_comm",
                            "zero_optimization.reduce_scatter",
                            "zero_optimization.reduce_bucket_size",
                            "zero_optimization.allgather_partitions",
                            "zero_optimization.allgather_bucket_size",
                            "zero_optimization.sub_group_size",
                            "zero_optimization.round_robin_gradients",
                            "zero_optimization.ignore_unused_parameters",
                            "zero_optimization.load_from_fp32_weights",
                            "zero_optimization.elastic_checkpoint",
                            "zero_optimization.stage3_max_live_parameters",
                            "zero_optimization.offload_optimizer.buffer_size",
                            "zero_optimization.offload_optimizer.max_in_cpu",
                            "zero_optimization.offload_optimizer.pipeline_read",
                            "zero_optimization.offload_optimizer.fast_init",
                            "zero_optimization.offload_optimizer.super_offload",
                            "zero_optimization.offload_optimizer.cpuadam_cores_perc",
                            "zero_optimization.offload_optimizer.buffer_count",
                            "optimizer.params.torch_adam",
                            "activation_checkpointing.partition_activations",
                            "activation_checkpointing.number_checkpoints",
                            "activation_checkpointing.contiguous_memory_optimization",
                            "activation_checkpointing.synchronize_checkpoint_boundary",
                            "activation_checkpointing.profile"};
  for (const std::string key : accepted) {
    const Config c = with({key + "=false"});
    ASSERT_EQ(c.ignored.size(), 1u) << key;
    EXPECT_EQ(c.ignored[0].key, key);
    EXPECT_EQ(c.ignored[0].where, "--set " + key);
    EXPECT_EQ(c.ignored[0].note, "");
  }
  for (const std::string key : {"flops_profiler", "comms_logger", "csv_monitor", "wandb"}) {
    const Config c = with({key + "={\"enabled\": true, \"deep\": {\"er\": [1]}}"});
    ASSERT_EQ(c.ignored.size(), 1u) << key;
    EXPECT_EQ(c.ignored[0].note, "not written here");
  }
  EXPECT_EQ(with({"aio={\"block_size\": 1}"}).ignored[0].note, "");
  for (const std::string key :
       {"amp", "torch_autocast", "sparse_attention", "zero_optimization.zero_quantized_weights",
        "zero_optimization.zero_quantized_gradients", "progressive_layer_drop", "curriculum_learning",
        "data_efficiency", "compression_training", "bf16.bf16_master_weights_and_grads",
        "fp16.fp16_master_weights_and_grads", "bf16_master_weights_and_grads",
        "fp16_master_weights_and_grads"})
    EXPECT_EQ(error_with({key + "={}"}),
              key + " would change the result and is not supported | --set " + key + " | leave it out");
  EXPECT_NE(error_with({"sparse_gradients=true"}).find("sparse_gradients true is not supported"),
            std::string::npos);
  EXPECT_NE(
      error_with({"zero_optimization.offload_optimizer.super_offload=true"}).find("true is not supported"),
      std::string::npos);
}

TEST(ConfigSets, ApplyBeforeEveryCheck) {
  EXPECT_EQ(with({"train.steps=7"}).train.steps, 7);
  EXPECT_EQ(with({"train.steps=7", "train.steps=8"}).train.steps, 8);
}

TEST(ConfigSets, ValuesAreJsonOrElseStrings) {
  EXPECT_EQ(with({"data.train=[\"a\", \"b\"]"}).data.train.size(), 2u);
  EXPECT_EQ(with({"data.train=[a"}).data.train, Strings{"/base/[a"});
  EXPECT_EQ(with({"data.train=a=b"}).data.train, Strings{"/base/a=b"});
  EXPECT_EQ(with({"data.train=\"12\""}).data.train, Strings{"/base/12"});
  EXPECT_EQ(with({"zero_optimization={\"offload_optimizer\": {}}"}).offloads_optimizer(), true);
  EXPECT_NE(error_with({"data.train=12"}).find("must be a path"), std::string::npos);
}

TEST(ConfigSets, SayWhereTheyStand) {
  EXPECT_EQ(error_with({"train.steps=0"}),
            "train.steps must be an integer >= 1, but is 0 | --set train.steps | ");
  EXPECT_EQ(
      error_with({"optimizer.params.betas=[0.9, 2]"}),
      "optimizer.params.betas[1] must be a number from 0 to below 1, but is 2 | --set optimizer.params.betas "
      "(optimizer.params.betas[1]) | ");
  EXPECT_EQ(
      error_with({"optimizer={\"params\": {\"lr\": 1, \"lrr\": 1}}"}),
      "unknown key \"optimizer.params.lrr\" | --set optimizer (optimizer.params.lrr) | optimizer.params.lr");
  EXPECT_EQ(error_with({"train.steps"}),
            "--set needs KEY=VALUE, but is \"train.steps\" | --set | --set train.steps=100");
  EXPECT_EQ(errors_with({"=5"}).size(), 1u);
  EXPECT_EQ(errors_with({"a..b=5"}).size(), 1u);
  EXPECT_EQ(with({"device.kind=host"}).where("device.kind"), "--set device.kind");
  EXPECT_EQ(with({}).where("data.sequence_length"), "c.json:6:49 (data.sequence_length)");
  EXPECT_EQ(with({}).where("data.format"), "c.json:6:11 (data.format)");
  EXPECT_EQ(with({}).where("device.kind"), "c.json:1:1 (device.kind)");
}

TEST(ConfigFile, IsReadFromDisk) {
  const auto folder = std::filesystem::temp_directory_path() / "tandem_config_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "c.json") << minimal();
  const Config c = load_config(folder / "c.json", {"train.steps=3"});
  EXPECT_EQ(c.train.steps, 3);
  EXPECT_EQ(c.model.path, (folder / "m").string());
  try {
    load_config(folder / "absent.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::usage);
    EXPECT_EQ(error.where(), (folder / "absent.json").string());
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem
