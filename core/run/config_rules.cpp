// What no single key can tell.
#include <algorithm>
#include <cmath>

#include "core/run/config_fields.h"
#include "core/run/config_reading.h"

namespace tandem {

namespace {

constexpr std::string_view kTotal = "train_batch_size", kMicro = "train_micro_batch_size_per_gpu",
                           kAccumulation = "gradient_accumulation_steps";
constexpr std::string_view kOffload = "zero_optimization.offload_optimizer";

/// "8 or 12": the multiples of unit next to value; one where only one is positive.
std::string nearest_multiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return below > 0 ? fmt::format("{} or {}", below, below + unit) : fmt::format("{}", unit);
}

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

/// A given total whose factors are incomplete: the absent one is total / (the known ones).
void divide_batch(Reading& reading, int64_t known, int64_t& absent, std::string_view equation, int ranks) {
  const int64_t total = reading.config.train_batch_size;
  if (total % (known * ranks) == 0) {
    absent = total / (known * ranks);
    return;
  }
  reading.fail(kTotal, fmt::format("train_batch_size {} is not {} x {}", total, equation, ranks_text(ranks)),
               nearest_multiples(total, known * ranks));
}

void compare_batch(Reading& reading, int ranks) {
  const Config& config = reading.config;
  const int64_t micro = config.micro_batch_size, accumulation = config.accumulation_steps;
  const int64_t product = micro * accumulation * ranks;
  if (config.train_batch_size == product) return;
  reading.fail(kTotal,
               fmt::format("train_batch_size {} is not {} {} x {} {} x {} = {}", config.train_batch_size,
                           kMicro, micro, kAccumulation, accumulation, ranks_text(ranks), product),
               fmt::format("{}; or {} without {}", product,
                           nearest_multiples(config.train_batch_size, micro * ranks), kAccumulation));
}

/// train_batch_size = micro-batch x accumulation x ranks, from what of it is given.
void resolve_batch(Reading& reading, int ranks) {
  if (!reading.usable({kTotal, kMicro, kAccumulation})) return;
  Config& config = reading.config;
  const bool total = reading.given(kTotal), micro = reading.given(kMicro),
             steps = reading.given(kAccumulation);
  if (!total && !micro) {
    const std::string what =
        steps ? fmt::format("{} {} alone does not give the batch size", kAccumulation,
                            config.accumulation_steps)
              : fmt::format("none of {}, {} and {} is given", kTotal, kMicro, kAccumulation);
    return reading.fail(steps ? kAccumulation : kTotal, fmt::format("{} ({})", what, ranks_text(ranks)),
                        fmt::format("{} or {}", kTotal, kMicro));
  }
  if (total && micro && steps) return compare_batch(reading, ranks);
  if (total && micro)
    return divide_batch(reading, config.micro_batch_size, config.accumulation_steps,
                        fmt::format("{} {} x {}", kMicro, config.micro_batch_size, kAccumulation), ranks);
  if (!steps) config.accumulation_steps = 1;
  if (total)
    return divide_batch(reading, config.accumulation_steps, config.micro_batch_size,
                        fmt::format("{} x {} {}", kMicro, kAccumulation, config.accumulation_steps), ranks);
  config.train_batch_size = config.micro_batch_size * config.accumulation_steps * ranks;
}

void check_dtype(Reading& reading) {
  const Config& config = reading.config;
  if (config.bf16_enabled && config.fp16_enabled)
    reading.fail("fp16.enabled", "bf16.enabled and fp16.enabled are both true", "false for one of them");
  const double first = std::ldexp(1.0, static_cast<int>(config.fp16.initial_scale_power));
  if (reading.usable({"fp16.initial_scale_power", "fp16.min_loss_scale"}) &&
      static_cast<double>(config.fp16.min_scale) > first)
    reading.fail("fp16.min_loss_scale",
                 fmt::format("fp16.min_loss_scale {} is above the first scale, 2^{} = {}",
                             config.fp16.min_scale, config.fp16.initial_scale_power, first),
                 fmt::format("at most {}", first));
  if (config.train.on_nonfinite == Config::Train::OnNonfinite::stop && config.fp16_enabled &&
      config.fp16.fixed == 0 && reading.usable({"train.on_nonfinite", "fp16.enabled", "fp16.loss_scale"}))
    reading.fail(
        "train.on_nonfinite",
        "train.on_nonfinite \"stop\" would end the run at the first overflow that dynamic fp16 loss scaling "
        "provokes on purpose",
        "\"skip\", or a fixed fp16.loss_scale");
}

void check_optimizer(Reading& reading) {
  const Config::Optimizer& optimizer = reading.config.optimizer;
  if (!optimizer.adam_w_mode && optimizer.type != Config::Optimizer::Type::adam)
    reading.fail("optimizer.params.adam_w_mode",
                 "optimizer.params.adam_w_mode false contradicts optimizer.type \"AdamW\"",
                 "true, or optimizer.type \"Adam\" for L2");
  constexpr std::string_view kBias = "optimizer.params.bias_correction";
  const json::Value* bias = reading.given(kBias);
  if (bias && *bias == json::Value(false))
    reading.fail(kBias,
                 "optimizer.params.bias_correction false is not supported: both moments are always corrected",
                 "true, or leave it out");
}

void note_unread_schedule_keys(Reading& reading) {
  const json::Value* params = reading.given("scheduler.params");
  if (!params || !params->is_object() || !reading.usable("scheduler.type")) return;
  const Field* type = find_field("scheduler.type");
  for (const json::Member& member : *params->object()) {
    const std::string key = "scheduler.params." + member.key;
    if (find_field(key) && !schedule_reads(reading.config.scheduler.type, member.key))
      reading.ignore(key, fmt::format("scheduler.type {} does not read it",
                                      json::describe(type->slot.get(reading.config, *type))));
  }
}

/// Compact states are of an optimizer on the host; some masters need bf16 weights.
void check_formats(Reading& reading) {
  const Config& config = reading.config;
  const Config::OffloadOptimizer& offload = config.offload_optimizer;
  constexpr std::string_view kMasters = "zero_optimization.offload_optimizer.master_format",
                             kMoments = "zero_optimization.offload_optimizer.moment_format";
  const auto needs_host = [&](std::string_view key, std::string_view name) {
    if (config.offloads_optimizer() || name == "fp32" || !reading.usable(key)) return;
    reading.fail(key,
                 fmt::format("{} \"{}\" is of an optimizer on the host, and nothing is offloaded", key, name),
                 "\"fp32\", or zero_optimization.offload_optimizer.device \"cpu\"");
  };
  needs_host(kMasters, row_of(offload.masters).name);
  needs_host(kMoments, row_of(offload.moments).name);
  const std::string_view why = refusal({offload.masters, offload.moments}, config.dtype());
  if (!why.empty() && reading.usable({kMasters, "bf16.enabled", "fp16.enabled"}))
    reading.fail(kMasters, fmt::format("{} \"{}\" {}", kMasters, row_of(offload.masters).name, why),
                 "\"fp32\", or bf16.enabled true");
}

/// Weights stream out of the optimizer's slots on the host.
void resolve_streaming(Reading& reading) {
  constexpr std::string_view kParam = "zero_optimization.offload_param",
                             kDevice = "zero_optimization.offload_param.device";
  Config& config = reading.config;
  if (!reading.given(kDevice) && reading.given(kParam))
    config.offload_param.device = Config::OffloadParam::Device::cpu;
  if (config.streams_weights() && !config.offloads_optimizer() && reading.usable(kOffload))
    reading.fail(
        reading.given(kDevice) ? kDevice : kParam,
        fmt::format("{} \"cpu\" needs the optimizer on the host too, and nothing is offloaded", kDevice),
        "zero_optimization.offload_optimizer.device \"cpu\", or offload_param.device \"none\"");
}

void check_ratio(Reading& reading) {
  constexpr std::string_view kRatio = "zero_optimization.offload_optimizer.ratio";
  const std::optional<double> ratio = reading.config.offload_optimizer.ratio;
  if (!ratio || reading.config.offloads_optimizer() ||
      !reading.usable({kRatio, "zero_optimization.offload_optimizer.device"}))
    return;
  reading.fail(kRatio,
               fmt::format("{} {} is of an optimizer on the host, and nothing is offloaded", kRatio, *ratio),
               "leave it out, or zero_optimization.offload_optimizer.device \"cpu\"");
}

void resolve_offload(Reading& reading) {
  Config::OffloadOptimizer& offload = reading.config.offload_optimizer;
  using Device = Config::OffloadOptimizer::Device;
  constexpr std::string_view kDevice = "zero_optimization.offload_optimizer.device",
                             kLegacy = "zero_optimization.cpu_offload",
                             kSchedule = "zero_optimization.offload_optimizer.schedule";
  const bool legacy = reading.is_true(kLegacy);
  if (legacy && reading.given(kDevice) && offload.device == Device::none && reading.usable(kDevice))
    reading.fail(kLegacy, fmt::format("{} true contradicts {} \"none\"", kLegacy, kDevice),
                 fmt::format("leave out {}", kLegacy));
  if (!reading.given(kDevice) && (legacy || reading.given(kOffload))) offload.device = Device::cpu;
  if (offload.device == Device::none && offload.schedule != Config::OffloadOptimizer::Schedule::synchronous) {
    offload.schedule = Config::OffloadOptimizer::Schedule::synchronous;
    if (reading.given(kSchedule)) reading.ignore(kSchedule, "nothing is offloaded");
  }
  check_ratio(reading);
  check_formats(reading);
  resolve_streaming(reading);
}

void resolve_stage(Reading& reading) {
  constexpr std::string_view kStage = "zero_optimization.stage";
  const Config& config = reading.config;
  const int64_t least = config.streams_weights() ? 3 : config.offloads_optimizer() ? 1 : 0;
  if (!reading.given(kStage)) {
    reading.config.zero_stage = least;
  } else if (reading.usable(kStage) && config.zero_stage < least) {
    reading.fail(kStage,
                 fmt::format("zero_optimization.stage {} is below {}, which {} needs", config.zero_stage,
                             least, config.streams_weights() ? "offload_param" : "offload_optimizer"),
                 config.streams_weights() ? "3, or leave it out" : "1, 2 or 3, or leave it out");
  }
}

void resolve_activations(Reading& reading) {
  constexpr std::string_view kCpu = "activation_checkpointing.cpu_checkpointing",
                             kPolicy = "activation_checkpointing.policy";
  if (!reading.is_true(kCpu)) return;
  const json::Value* policy = reading.given(kPolicy);
  if (policy && *policy != json::Value("recompute_offload"))
    return reading.fail(kCpu,
                        fmt::format("{} true contradicts {} {}", kCpu, kPolicy, json::describe(*policy)),
                        fmt::format("leave out {}", kCpu));
  reading.config.activation_policy = Config::ActivationPolicy::recompute_offload;
}

/// One of two keys must be given.
void exactly_one(Reading& reading, std::string_view first, std::string_view second) {
  const bool a = reading.given(first), b = reading.given(second);
  if (!reading.usable({first, second}) || a != b) return;
  reading.fail(a ? second : first,
               a ? fmt::format("{} and {} are both given", first, second)
                 : fmt::format("neither {} nor {} is given", first, second),
               a ? "leave out one of them" : fmt::format("{} or {}", first, second));
}

void check_data(Reading& reading) {
  constexpr std::string_view kSplit = "data.eval_split";
  const Config::Data& data = reading.config.data;
  if (data.eval_split > 0 && !data.eval.empty() && reading.usable({kSplit, "data.eval"}))
    reading.fail(kSplit, fmt::format("data.eval_split {} and data.eval are both given", data.eval_split),
                 "leave out one of them");
}

/// The best checkpoint is found by its own evaluation, so every evaluation must be on a save.
void check_keep_best(Reading& reading) {
  constexpr std::string_view kBest = "checkpoint.keep_best", kSave = "checkpoint.every",
                             kEvaluate = "train.eval_every";
  const Config& config = reading.config;
  if (!config.checkpoint.keep_best ||
      !reading.usable({kBest, kSave, kEvaluate, "data.eval", "data.eval_split"}))
    return;
  if (config.data.eval.empty() && config.data.eval_split == 0)
    return reading.fail(kBest, fmt::format("{} needs evaluations, and there is no eval set", kBest),
                        "data.eval or data.eval_split");
  const int64_t save = config.checkpoint.every, evaluate = config.train.eval_every;
  if (save > 0 && evaluate > 0 && evaluate % save == 0) return;
  reading.fail(kBest,
               fmt::format("{} needs every evaluation on a save, but {} is {} and {} is {}", kBest, kEvaluate,
                           evaluate, kSave, save),
               save > 0 ? fmt::format("{} {}", kEvaluate, nearest_multiples(evaluate, save))
                        : fmt::format("{} {}", kSave, evaluate > 0 ? evaluate : 100));
}

void check_output(Reading& reading) {
  if (reading.use() == ConfigUse::train && reading.config.output_dir.empty() && reading.usable("output_dir"))
    reading.fail("output_dir", "output_dir is missing", "a folder for this run, such as \"runs/first\"");
}

void check_device(Reading& reading) {
  if (!reading.usable("device.kind")) return;
  const std::string& kind = reading.config.device.kind;
  const std::string_view number = std::string_view(kind).substr(std::min<size_t>(kind.size(), 5));
  const bool card = kind.starts_with("cuda:") && !number.empty() && number.size() <= 3 &&
                    number.find_first_not_of("0123456789") == number.npos;
  if (kind == "auto" || kind == "cuda" || kind == "host" || card) return;
  reading.fail(
      "device.kind",
      fmt::format("device.kind \"{}\" is not supported{}", printable(kind), kind == "paced" ? " yet" : ""),
      "\"auto\", \"cuda\", \"cuda:0\" or \"host\"");
}

}  // namespace

bool schedule_reads(ScheduleType type, std::string_view param) {
  const bool warmup = param == "warmup_num_steps" || param == "warmup_type";
  const bool ends = param == "warmup_min_lr" || param == "warmup_max_lr";
  switch (type) {
    case ScheduleType::constant:
      return false;
    case ScheduleType::warmup:
      return warmup || ends;
    case ScheduleType::warmup_decay:
      return warmup || ends || param == "total_num_steps";
    case ScheduleType::warmup_cosine:
      return !ends;
  }
  return false;
}

void apply_rules(Reading& reading) {
  constexpr int kRanks = 1;  // every process trains alone
  check_output(reading);
  resolve_batch(reading, kRanks);
  exactly_one(reading, "model.path", "model.config");
  check_data(reading);
  check_dtype(reading);
  check_optimizer(reading);
  note_unread_schedule_keys(reading);
  resolve_offload(reading);
  resolve_stage(reading);
  resolve_activations(reading);
  exactly_one(reading, "train.steps", "train.epochs");
  check_keep_best(reading);
  check_device(reading);
}

}  // namespace tandem
