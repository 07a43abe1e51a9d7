// Keys of configs written for DeepSpeed that Tandem knows without having a use for them.
#include "core/base/glob.h"
#include "core/run/config_fields.h"

namespace tandem {

namespace {

constexpr auto kIgnored = ForeignKey::Effect::ignored;
constexpr auto kIgnoredWhenFalse = ForeignKey::Effect::ignored_when_false;
constexpr auto kRefused = ForeignKey::Effect::refused;
constexpr std::string_view kNotWritten = "not written here";

}  // namespace

const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<ForeignKey> keys = {
      {"wall_clock_breakdown", kIgnored},
      {"prescale_gradients", kIgnored},
      {"gradient_predivide_factor", kIgnored},
      {"sparse_gradients", kIgnoredWhenFalse},
      {"communication_data_type", kIgnored},
      {"zero_allow_untested_optimizer", kIgnored},
      {"zero_force_ds_cpu_optimizer", kIgnored},
      {"dump_state", kIgnored},
      {"memory_breakdown", kIgnored},
      {"checkpoint.tag_validation", kIgnored},
      {"checkpoint.load_universal", kIgnored},
      {"checkpoint.use_node_local_storage", kIgnored},
      {"checkpoint.parallel_write", kIgnored},
      {"zero_optimization.contiguous_gradients", kIgnored},
      {"zero_optimization.overlap_comm", kIgnored},
      {"zero_optimization.reduce_scatter", kIgnored},
      {"zero_optimization.reduce_bucket_size", kIgnored},
      {"zero_optimization.allgather_*", kIgnored},
      {"zero_optimization.sub_group_size", kIgnored},
      {"zero_optimization.round_robin_gradients", kIgnored},
      {"zero_optimization.ignore_unused_parameters", kIgnored},
      {"zero_optimization.load_from_fp32_weights", kIgnored},
      {"zero_optimization.elastic_checkpoint", kIgnored},
      {"zero_optimization.stage3_*", kIgnored},
      {"zero_optimization.offload_*.buffer_size", kIgnored},
      {"zero_optimization.offload_*.max_in_cpu", kIgnored},
      {"zero_optimization.offload_*.pipeline_*", kIgnored},
      {"zero_optimization.offload_*.fast_init", kIgnored},
      {"zero_optimization.offload_*.super_offload", kIgnoredWhenFalse},
      {"zero_optimization.offload_*.cpuadam_cores_perc", kIgnored},
      {"zero_optimization.offload_optimizer.buffer_count", kIgnored},
      {"zero_optimization.offload_param.pin_memory", kIgnored},
      {"optimizer.params.torch_adam", kIgnored},
      {"activation_checkpointing.partition_activations", kIgnored},
      {"activation_checkpointing.number_checkpoints", kIgnored},
      {"activation_checkpointing.contiguous_memory_optimization", kIgnored},
      {"activation_checkpointing.synchronize_checkpoint_boundary", kIgnored},
      {"activation_checkpointing.profile", kIgnored},
      {"aio", kIgnored},
      {"flops_profiler", kIgnored, kNotWritten},
      {"comms_logger", kIgnored, kNotWritten},
      {"csv_monitor", kIgnored, kNotWritten},
      {"wandb", kIgnored, kNotWritten},
      {"amp", kRefused},
      {"torch_autocast", kRefused},
      {"sparse_attention", kRefused},
      {"zero_optimization.zero_quantized_*", kRefused},
      {"zero_quantized_*", kRefused},
      {"progressive_layer_drop", kRefused},
      {"curriculum_learning", kRefused},
      {"data_efficiency", kRefused},
      {"compression_training", kRefused},
      {"bf16_master_weights_and_grads", kRefused},
      {"bf16.bf16_master_weights_and_grads", kRefused},
      {"fp16_master_weights_and_grads", kRefused},
      {"fp16.fp16_master_weights_and_grads", kRefused},
  };
  return keys;
}

const ForeignKey* find_foreign(std::string_view key) {
  for (const ForeignKey& foreign : foreign_keys())
    if (glob_matches(foreign.pattern, key)) return &foreign;
  return nullptr;
}

}  // namespace tandem
