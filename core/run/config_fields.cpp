// The only list of config keys. Reading, defaults, ranges, hints, the resolved dump and docs/config.md all
// use it.
#include "core/run/config_fields.h"

#include "core/run/config_slots.h"

namespace tandem {

namespace {

#define MEMBER(member) config_slots::slot([](auto& config) -> auto& { return config.member; })

constexpr auto kDeepSpeed = Origin::deepspeed;
using Kind = FieldKind;

// A row is its facts, then its meaning.
// clang-format off

std::vector<Field> batch_fields() {
  return {
      {.key = "output_dir", .kind = Kind::output_path, .default_text = "required to train",
       .slot = MEMBER(output_dir),
       .meaning = "run folder, relative to the working directory (training only)"},
      {.key = "train_batch_size", .kind = Kind::integer, .origin = kDeepSpeed, .range = at_least(1),
       .default_text = "derived", .slot = MEMBER(train_batch_size),
       .meaning = "sequences per step = micro-batch x accumulation x ranks; of the three, the absent are "
                  "derived"},
      {.key = "train_micro_batch_size_per_gpu", .kind = Kind::integer, .origin = kDeepSpeed,
       .range = at_least(1), .default_text = "derived", .slot = MEMBER(micro_batch_size),
       .meaning = "sequences per micro-batch; alone, or with train_batch_size alone, accumulation is 1"},
      {.key = "gradient_accumulation_steps", .kind = Kind::integer, .origin = kDeepSpeed,
       .range = at_least(1), .default_text = "derived", .slot = MEMBER(accumulation_steps),
       .meaning = "micro-batches per step; not enough alone"},
      {.key = "gradient_clipping", .kind = Kind::real, .fallback = "0", .origin = kDeepSpeed,
       .range = at_least(0), .slot = MEMBER(gradient_clipping),
       .meaning = "largest global L2 norm of the gradient: it is multiplied by min(1, value/(norm + 1e-6)); "
                  "0 = off"},
      {.key = "steps_per_print", .kind = Kind::integer, .fallback = "10", .origin = kDeepSpeed,
       .range = at_least(1), .slot = MEMBER(steps_per_print),
       .meaning = "steps between progress lines when not on a terminal"},
  };
}

std::vector<Field> dtype_fields() {
  return {
      {.key = "bf16.enabled", .kind = Kind::boolean, .fallback = "false", .origin = kDeepSpeed,
       .slot = MEMBER(bf16_enabled),
       .meaning = "weights, activations and gradients in bf16; not with fp16; neither: fp32"},
      {.key = "fp16.enabled", .kind = Kind::boolean, .fallback = "false", .origin = kDeepSpeed,
       .slot = MEMBER(fp16_enabled),
       .meaning = "weights, activations and gradients in fp16, with loss scaling"},
      {.key = "fp16.loss_scale", .kind = Kind::real, .fallback = "0", .origin = kDeepSpeed,
       .range = at_least(0), .slot = MEMBER(fp16.fixed),
       .meaning = "a fixed loss scale; 0 = dynamic"},
      {.key = "fp16.initial_scale_power", .kind = Kind::integer, .fallback = "16", .origin = kDeepSpeed,
       .range = between(0, 127), .slot = MEMBER(fp16.initial_scale_power),
       .meaning = "the first dynamic scale is 2 to this power"},
      {.key = "fp16.loss_scale_window", .kind = Kind::integer, .fallback = "1000", .origin = kDeepSpeed,
       .range = at_least(1), .slot = MEMBER(fp16.window),
       .meaning = "good steps in a row until the scale doubles"},
      {.key = "fp16.hysteresis", .kind = Kind::integer, .fallback = "2", .origin = kDeepSpeed,
       .range = at_least(1), .slot = MEMBER(fp16.hysteresis),
       .meaning = "overflows until the scale halves for the first time; restored when it doubles"},
      {.key = "fp16.min_loss_scale", .kind = Kind::integer, .fallback = "1", .origin = kDeepSpeed,
       .range = at_least(1), .slot = MEMBER(fp16.min_scale),
       .meaning = "the dynamic scale never falls below"},
      {.key = "fp16.consecutive_hysteresis", .kind = Kind::boolean, .fallback = "false", .origin = kDeepSpeed,
       .slot = MEMBER(fp16.consecutive_hysteresis),
       .meaning = "every good step restores the hysteresis"},
      {.key = "data_types.grad_accum_dtype", .kind = Kind::choice, .fallback = "\"fp32\"",
       .origin = kDeepSpeed, .choices = {"fp32"},
       .meaning = "gradients accumulate in fp32"},
  };
}

std::vector<Field> optimizer_fields() {
  return {
      {.key = "optimizer.type", .kind = Kind::choice, .fallback = "\"AdamW\"", .origin = kDeepSpeed,
       .choices = {"AdamW", "Adam"}, .slot = MEMBER(optimizer.type),
       .meaning = "both decouple the weight decay unless adam_w_mode is false"},
      {.key = "optimizer.params.lr", .kind = Kind::real, .origin = kDeepSpeed, .range = above(0),
       .required = true, .slot = MEMBER(optimizer.lr),
       .meaning = "learning rate"},
      {.key = "optimizer.params.betas", .kind = Kind::betas, .fallback = "[0.9, 0.999]", .origin = kDeepSpeed,
       .slot = MEMBER(optimizer.betas),
       .meaning = "decay of the first and second moment"},
      {.key = "optimizer.params.eps", .kind = Kind::real, .fallback = "1e-8", .origin = kDeepSpeed,
       .range = above(0), .slot = MEMBER(optimizer.eps),
       .meaning = "added to the root of the second moment"},
      {.key = "optimizer.params.weight_decay", .kind = Kind::real, .fallback = "0", .origin = kDeepSpeed,
       .range = at_least(0), .slot = MEMBER(optimizer.weight_decay),
       .meaning = "on parameters of rank 2 and above only"},
      {.key = "optimizer.params.adam_w_mode", .kind = Kind::boolean, .fallback = "true", .origin = kDeepSpeed,
       .slot = MEMBER(optimizer.adam_w_mode),
       .meaning = "decoupled weight decay; false, with \"Adam\" only: L2, added to the gradient"},
      {.key = "optimizer.params.bias_correction", .kind = Kind::boolean, .fallback = "true",
       .origin = kDeepSpeed,
       .meaning = "always on; false is refused"},
      {.key = "optimizer.params.no_decay", .kind = Kind::texts, .fallback = "[]",
       .slot = MEMBER(optimizer.no_decay),
       .meaning = "globs of further parameter names without weight decay"},
  };
}

std::vector<Field> scheduler_fields() {
  return {
      {.key = "scheduler.type", .kind = Kind::choice, .fallback = "\"constant\"", .origin = kDeepSpeed,
       .choices = {"constant", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}, .slot = MEMBER(scheduler.type),
       .meaning = "\"constant\" is Tandem's. Below: n = updates done before this one, W = warm-up, N = "
                  "total"},
      {.key = "scheduler.params.warmup_num_steps", .kind = Kind::integer, .fallback = "1000",
       .origin = kDeepSpeed, .range = at_least(0), .slot = MEMBER(scheduler.warmup_num_steps),
       .meaning = "W. Factor for n < W: linear min(1, (n+1)/W); log min(1, ln(n+2)/ln(max(2, W))); W <= 1: "
                  "none"},
      {.key = "scheduler.params.warmup_type", .kind = Kind::choice, .fallback = "\"log\"",
       .origin = kDeepSpeed, .choices = {"log", "linear"}, .slot = MEMBER(scheduler.warmup_type),
       .meaning = "form of the warm-up"},
      {.key = "scheduler.params.warmup_min_lr", .kind = Kind::real, .fallback = "0", .origin = kDeepSpeed,
       .range = at_least(0), .slot = MEMBER(scheduler.warmup_min_lr),
       .meaning = "lr = min + (max - min) x factor, in warm-up and decay"},
      {.key = "scheduler.params.warmup_max_lr", .kind = Kind::real, .origin = kDeepSpeed,
       .range = at_least(0), .default_text = "optimizer.params.lr", .slot = MEMBER(scheduler.warmup_max_lr),
       .meaning = "the max of that"},
      {.key = "scheduler.params.total_num_steps", .kind = Kind::integer, .origin = kDeepSpeed,
       .range = at_least(1), .default_text = "steps of the run", .slot = MEMBER(scheduler.total_num_steps),
       .meaning = "N. From W on: decay (N-n)/(N-W); cosine, times optimizer.params.lr: r + (1-r)(1 + cos(pi "
                  "(n-W)/(N-W)))/2, r = cos_min_ratio; from N on 0 and r"},
      {.key = "scheduler.params.cos_min_ratio", .kind = Kind::real, .fallback = "1e-4", .origin = kDeepSpeed,
       .range = between(0, 1), .slot = MEMBER(scheduler.cos_min_ratio),
       .meaning = "where the cosine ends"},
      {.key = "scheduler.params.warmup_min_ratio", .kind = Kind::real, .fallback = "0", .origin = kDeepSpeed,
       .range = between(0, 1), .slot = MEMBER(scheduler.warmup_min_ratio),
       .meaning = "where the cosine's warm-up, which ends at 1, begins"},
  };
}

std::vector<Field> zero_fields() {
  return {
      {.key = "zero_optimization.stage", .kind = Kind::integer, .fallback = "0", .origin = kDeepSpeed,
       .range = between(0, 3), .default_text = "0; 1 with offload_optimizer, 3 with offload_param",
       .slot = MEMBER(zero_stage),
       .meaning = "at one rank 0 to 2 are the same program; one that is too low for the offload is refused"},
      {.key = "zero_optimization.cpu_offload", .kind = Kind::boolean, .fallback = "false",
       .origin = kDeepSpeed,
       .meaning = "old name: true is offload_optimizer.device \"cpu\""},
      {.key = "zero_optimization.offload_optimizer.device", .kind = Kind::choice, .fallback = "\"none\"",
       .origin = kDeepSpeed, .choices = {"none", "cpu"}, .later_choices = {"nvme"},
       .default_text = "\"none\"; \"cpu\" where the section stands", .slot = MEMBER(offload_optimizer.device),
       .meaning = "where the optimizer runs and its states live"},
      {.key = "zero_optimization.offload_optimizer.ratio", .kind = Kind::real, .origin = kDeepSpeed,
       .range = between(0, 1),
       .default_text = "1; with exact and fp32 states less the embedding where the device has room",
       .slot = MEMBER(offload_optimizer.ratio),
       .meaning = "share of the parameters whose optimizer is on the host, in whole blocks (the nearest that "
                  "they give is printed); from the embedding upward the others' is on the device, with fp32 "
                  "states"},
      {.key = "zero_optimization.offload_optimizer.pin_memory", .kind = Kind::boolean, .fallback = "true",
       .origin = kDeepSpeed, .slot = MEMBER(offload_optimizer.pin_memory),
       .meaning = "false: pageable staging memory"},
      {.key = "zero_optimization.offload_optimizer.schedule", .kind = Kind::choice,
       .fallback = "\"exact\"", .choices = {"synchronous", "exact", "delayed"},
       .slot = MEMBER(offload_optimizer.schedule),
       .meaning = "synchronous: nothing overlaps; exact: the same bits, but the next step waits block by "
                  "block, and without gradient_clipping and fp16 and with train.on_nonfinite \"stop\" updates "
                  "begin as gradients arrive; delayed: the optimizer and both transfers of a step run behind "
                  "the next step, which computes with weights one update older"},
      {.key = "zero_optimization.offload_optimizer.warmup_steps", .kind = Kind::integer, .fallback = "40",
       .range = at_least(0), .slot = MEMBER(offload_optimizer.warmup_steps),
       .meaning = "steps without delay before delayed begins, and after an overflow or by staleness_limit"},
      {.key = "zero_optimization.offload_optimizer.staleness_limit", .kind = Kind::real, .fallback = "0",
       .range = at_least(0), .slot = MEMBER(offload_optimizer.staleness_limit),
       .meaning = "delayed only: no delay for warmup_steps steps once the mean loss of the last 20 known steps "
                  "is above the lowest such mean by more than this many nats; 0 = off"},
      {.key = "zero_optimization.offload_optimizer.correction", .kind = Kind::choice,
       .fallback = "\"predict\"", .choices = {"none", "predict"},
       .slot = MEMBER(offload_optimizer.correction),
       .meaning = "delayed only; predict: forward reads the older weights moved on by prediction x their "
                  "last update"},
      {.key = "zero_optimization.offload_optimizer.prediction", .kind = Kind::real, .fallback = "1",
       .range = at_least(0), .slot = MEMBER(offload_optimizer.prediction),
       .meaning = "that factor; 1 to 2 are worth a try"},
      {.key = "zero_optimization.offload_optimizer.master_format", .kind = Kind::choice,
       .fallback = "\"fp32\"", .choices = {"fp32", "split", "ulp8"}, .slot = MEMBER(offload_optimizer.masters),
       .meaning = "format of the master weights on the host; split and ulp8 with bf16 weights"},
      {.key = "zero_optimization.offload_optimizer.moment_format", .kind = Kind::choice,
       .fallback = "\"fp32\"", .choices = {"fp32", "bf16", "int8"}, .slot = MEMBER(offload_optimizer.moments),
       .meaning = "format of both moments on the host"},
      {.key = "zero_optimization.offload_param.device", .kind = Kind::choice, .fallback = "\"none\"",
       .origin = kDeepSpeed, .choices = {"none", "cpu"}, .later_choices = {"nvme"},
       .default_text = "\"none\"; \"cpu\" where the section stands", .slot = MEMBER(offload_param.device),
       .meaning = "where the weights live that the model computes with; cpu: they stream through the device, the same bits; "
                  "needs offload_optimizer"},
      {.key = "zero_optimization.offload_param.buffer_count", .kind = Kind::integer, .fallback = "3",
       .origin = kDeepSpeed, .range = at_least(2), .slot = MEMBER(offload_param.buffer_count),
       .meaning = "layers for which the device has room at once where weights stream"},
  };
}

std::vector<Field> train_fields() {
  return {
      {.key = "train.steps", .kind = Kind::integer, .range = at_least(1),
       .default_text = "exactly one of the two", .slot = MEMBER(train.steps),
       .meaning = "length of the run in steps"},
      {.key = "train.epochs", .kind = Kind::real, .range = above(0), .default_text = "exactly one of the two",
       .slot = MEMBER(train.epochs),
       .meaning = "length of the run in passes over the data: ceil(epochs x samples / batch) steps"},
      {.key = "train.seed", .kind = Kind::u64, .fallback = "1", .slot = MEMBER(train.seed),
       .meaning = "of initial weights, data order and rounding"},
      {.key = "train.order", .kind = Kind::choice, .fallback = "\"layer_major\"",
       .choices = {"layer_major", "micro_batch_major"}, .slot = MEMBER(train.order),
       .meaning = "how a step with several micro-batches runs; the same bits"},
      {.key = "train.eval_every", .kind = Kind::integer, .fallback = "0", .range = at_least(0),
       .slot = MEMBER(train.eval_every),
       .meaning = "steps between evaluations; 0 = at the end only, if there is an eval set"},
      {.key = "train.eval_tokens", .kind = Kind::integer, .fallback = "0", .range = between(0, 1e15),
       .slot = MEMBER(train.eval_tokens),
       .meaning = "tokens of an evaluation; 0 = all"},
      {.key = "train.on_nonfinite", .kind = Kind::choice, .fallback = "\"skip\"", .choices = {"skip", "stop"},
       .slot = MEMBER(train.on_nonfinite),
       .meaning = "what a gradient that is not finite does to its step; stop: not with dynamic fp16 scaling"},
      {.key = "train.max_skipped_in_a_row", .kind = Kind::integer, .fallback = "20", .range = at_least(1),
       .slot = MEMBER(train.max_skipped_in_a_row),
       .meaning = "then the run ends with status 1"},
      {.key = "train.watchdog_seconds", .kind = Kind::integer, .fallback = "600", .range = at_least(0),
       .later = true, .without_effect = "0",
       .meaning = "a step that takes longer ends the run; 0 = off"},
      {.key = "activation_checkpointing.policy", .kind = Kind::choice, .fallback = "\"auto\"",
       .choices = {"keep", "recompute", "recompute_offload", "auto"}, .slot = MEMBER(activation_policy),
       .meaning = "keep a layer's activations for its backward, or compute them again from its input, which stays on the "
                  "device or waits in pinned memory of the host; the same bits. auto: the first of these for which there is "
                  "room; the start says which"},
      {.key = "activation_checkpointing.keep_blocks", .kind = Kind::integer, .fallback = "0",
       .range = at_least(0), .later = true,
       .meaning = "the last so many blocks keep their activations whatever the policy"},
      {.key = "activation_checkpointing.cpu_checkpointing", .kind = Kind::boolean, .fallback = "false",
       .origin = kDeepSpeed,
       .meaning = "true is policy \"recompute_offload\""},
      {.key = "checkpoint.every", .kind = Kind::integer, .fallback = "0", .range = at_least(0),
       .slot = MEMBER(checkpoint.every),
       .meaning = "steps between checkpoints; 0 = only at the end"},
      {.key = "checkpoint.keep", .kind = Kind::integer, .fallback = "2", .range = at_least(1),
       .slot = MEMBER(checkpoint.keep),
       .meaning = "the newest complete ones that stay"},
      {.key = "checkpoint.keep_best", .kind = Kind::boolean, .fallback = "false",
       .slot = MEMBER(checkpoint.keep_best),
       .meaning = "also keep the one with the lowest eval loss; train.eval_every must be a multiple of "
                  "checkpoint.every"},
      {.key = "checkpoint.states", .kind = Kind::boolean, .fallback = "true",
       .slot = MEMBER(checkpoint.states),
       .meaning = "false: weights only, not resumable"},
      {.key = "tensorboard.enabled", .kind = Kind::boolean, .fallback = "true", .origin = kDeepSpeed,
       .later = true, .without_effect = "false",
       .meaning = "write TensorBoard files"},
      {.key = "tensorboard.output_path", .kind = Kind::output_path, .fallback = "null", .origin = kDeepSpeed,
       .null_allowed = true, .default_text = "OUTPUT_DIR/tensorboard", .later = true,
       .meaning = "their folder"},
      {.key = "tensorboard.job_name", .kind = Kind::text, .fallback = "\"\"", .origin = kDeepSpeed,
       .later = true,
       .meaning = "a folder below that"},
      {.key = "trace.enabled", .kind = Kind::boolean, .fallback = "false", .slot = MEMBER(trace.enabled),
       .meaning = "write trace.json: what every stream, lane and the main thread did in some steps, for "
                  "Perfetto"},
      {.key = "trace.start_step", .kind = Kind::integer, .fallback = "5", .range = at_least(1),
       .slot = MEMBER(trace.start_step),
       .meaning = "first traced step, from 1"},
      {.key = "trace.steps", .kind = Kind::integer, .fallback = "3", .range = at_least(1),
       .slot = MEMBER(trace.steps),
       .meaning = "traced steps; kept in memory until the last one is known"},
  };
}

std::vector<Field> model_and_data_fields() {
  return {
      {.key = "model.path", .kind = Kind::path, .default_text = "exactly one of the two",
       .slot = MEMBER(model.path),
       .meaning = "Hugging Face folder, or a Tandem checkpoint (weights only)"},
      {.key = "model.config", .kind = Kind::arch, .default_text = "exactly one of the two",
       .slot = MEMBER(model.config),
       .meaning = "config.json's keys or its path; initial weights from train.seed with initializer_range"},
      {.key = "model.tokenizer", .kind = Kind::path, .default_text = "model.path",
       .slot = MEMBER(model.tokenizer),
       .meaning = "folder whose tokenizer files are copied into checkpoints"},
      {.key = "model.mmap", .kind = Kind::boolean, .fallback = "false", .slot = MEMBER(model.mmap),
       .meaning = "read the model's weights through a memory map instead of reads"},
      {.key = "model.freeze", .kind = Kind::texts, .fallback = "[]", .slot = MEMBER(model.freeze),
       .meaning = "globs of parameter names that are not trained: no gradient, no optimizer states"},
      {.key = "data.train", .kind = Kind::paths, .range = at_least(1), .required = true,
       .slot = MEMBER(data.train),
       .meaning = "token files"},
      {.key = "data.eval", .kind = Kind::paths, .fallback = "null", .null_allowed = true,
       .slot = MEMBER(data.eval),
       .meaning = "token files of the evaluation"},
      {.key = "data.eval_split", .kind = Kind::real, .fallback = "0", .range = between(0, 0.5),
       .slot = MEMBER(data.eval_split),
       .meaning = "last share of data.train that is kept for evaluation; not with data.eval"},
      {.key = "data.format", .kind = Kind::choice, .fallback = "\"auto\"",
       .choices = {"auto", "llmc", "nanogpt", "megatron", "llmq", "bytes"},
       .slot = MEMBER(data.format),
       .meaning = "auto: by the file's magic; a file without one must be named; megatron: the path of the "
                  ".bin, the .idx or both without suffix; bytes: each byte is a token (vocab 256)"},
      {.key = "data.sequence_length", .kind = Kind::integer, .range = at_least(1), .required = true,
       .slot = MEMBER(data.sequence_length),
       .meaning = "tokens per sequence, at most the model's positions"},
      {.key = "data.shuffle", .kind = Kind::boolean, .fallback = "true", .slot = MEMBER(data.shuffle),
       .meaning = "another order of the samples in every epoch"},
      {.key = "data.packing", .kind = Kind::choice, .fallback = "\"stream\"", .choices = {"stream"},
       .later_choices = {"documents"},
       .meaning = "stream: no mask between documents"},
  };
}

std::vector<Field> device_fields() {
  return {
      {.key = "device.kind", .kind = Kind::text, .fallback = "\"auto\"", .slot = MEMBER(device.kind),
       .meaning = "\"auto\" (first usable CUDA card, else host), \"cuda\", \"cuda:N\" or \"host\"; an "
                  "explicit one is never replaced"},
      {.key = "device.hardware", .kind = Kind::text, .fallback = "null", .null_allowed = true, .later = true,
       .meaning = "hardware profile of a paced device or a plan"},
      {.key = "device.memory_limit", .kind = Kind::bytes, .fallback = "null", .range = at_least(1),
       .null_allowed = true, .default_text = "null = free - reserve", .slot = MEMBER(device.memory_limit),
       .meaning = "device memory that may be used"},
      {.key = "device.reserve", .kind = Kind::bytes, .fallback = "\"512MiB\"", .range = at_least(0),
       .slot = MEMBER(device.reserve),
       .meaning = "left free on the card"},
      {.key = "device.threads", .kind = Kind::integer, .fallback = "0", .range = at_least(0),
       .slot = MEMBER(device.threads),
       .meaning = "compute threads of this process; 0 = all that is allowed"},
      {.key = "device.isa", .kind = Kind::choice, .fallback = "\"auto\"",
       .choices = {"auto", "scalar", "avx2", "avx512", "neon"}, .slot = MEMBER(device.isa),
       .meaning = "instruction set of the CPU optimizer"},
      {.key = "device.chaos_seed", .kind = Kind::u64, .fallback = "null", .null_allowed = true,
       .slot = MEMBER(device.chaos_seed),
       .meaning = "host device: random delays, poisoned scratch (for tests)"},
  };
}

// clang-format on

#undef MEMBER

}  // namespace

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all;
    for (const auto& group : {batch_fields(), model_and_data_fields(), dtype_fields(), optimizer_fields(),
                              scheduler_fields(), zero_fields(), train_fields(), device_fields()})
      all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return fields;
}

const Field* find_field(std::string_view key) {
  for (const Field& field : config_fields())
    if (field.key == key) return &field;
  return nullptr;
}

}  // namespace tandem
