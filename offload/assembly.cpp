#include "offload/assembly.h"

#include <algorithm>
#include <cmath>

#include "core/device/host_limits.h"
#include "core/io/hf_config.h"
#include "cpu_adam/host_memory.h"
#include "cpu_adam/make_workers.h"
#include "gpu/backend.h"
#include "gpu/cuda_probe.h"

namespace tandem {

namespace {

constexpr uint64_t kConfigMost = uint64_t{16} << 20;  // bytes of a config.json

TokenFormat token_format_of(Config::Data::Format format) {
  switch (format) {
    case Config::Data::Format::automatic:
      return TokenFormat::automatic;
    case Config::Data::Format::llmc:
      return TokenFormat::llmc;
    case Config::Data::Format::nanogpt:
      return TokenFormat::nanogpt;
    case Config::Data::Format::bytes:
      return TokenFormat::bytes;
  }
  return TokenFormat::automatic;
}

std::unique_ptr<SampleSet> open_files(const std::vector<std::string>& paths, TokenFormat format,
                                      int64_t vocab, int64_t length) {
  std::vector<TokenFile> files;
  for (const std::string& path : paths) files.emplace_back(path, format, vocab);
  return std::make_unique<SampleSet>(std::move(files), length);
}

/// "auto": the first usable card, else the CPU; no card can train in this build, and the probe says why there
/// is none to see.
void choose_device(const Config::Device& device, const std::string& where, Machine& machine) {
  machine.device_kind = device.kind;
  const gpu::CudaProbe probe = gpu::probe_cuda();
  const std::string why = probe.cards.empty() ? probe.why : "this version trains on the CPU only";
  if (machine.device_kind == "auto") {
    machine.device_kind = "host";
    machine.device_why = "auto: no CUDA device (" + why + ")";
    return;
  }
  CHECK(machine.device_kind == "host", Status::usage,
        fmt::format("device \"{}\" can't be used: {}", machine.device_kind, why), where,
        "\"auto\" or \"host\"");
}

PolicyOptions policy_of(const Config& config) {
  PolicyOptions policy;
  const bool delayed = config.offload_optimizer.schedule == Config::OffloadOptimizer::Schedule::delayed;
  policy.schedule = delayed ? Schedule::delayed : Schedule::synchronous;
  policy.warmup_steps = config.offload_optimizer.warmup_steps;
  policy.loss_scale = loss_scaling(config);
  return policy;
}

}  // namespace

ModelSource open_model(const Config& config) {
  ModelSource source;
  if (config.model.path) {
    source.folder = std::make_unique<ModelFolder>(*config.model.path);
    source.arch = source.folder->arch();
    const json::Document document =
        parse_hf_json(source.folder->config_text(), *config.model.path + "/config.json");
    source.config_json = with_stored_dtype(source.folder->config_text(), document, config.dtype());
  } else if (const std::string* path = config.model.config.string()) {
    const std::string text = read_text(*path, kConfigMost);
    const json::Document document = parse_hf_json(text, *path);
    source.arch = parse_hf_config(json::Node(document));
    source.config_json = with_stored_dtype(text, document, config.dtype());
  } else {
    source.arch = parse_hf_config(config.model_config());
    source.config_json = render_hf_config(config.model.config, config.dtype());
  }
  const int64_t length = config.data.sequence_length;
  CHECK(length <= source.arch.max_positions, Status::usage,
        fmt::format("data.sequence_length {} is above the model's {} positions", length,
                    source.arch.max_positions),
        config.where("data.sequence_length"), fmt::format("{} or less", source.arch.max_positions));
  return source;
}

Machine find_machine(const Config::Device& device, const std::string& where) {
  Machine machine;
  choose_device(device, where, machine);
  machine.topology = discover_topology();
  machine.isa = choose_isa(device.isa);
  machine.isa_why = device.isa == "auto" ? "the widest that this CPU has" : "device.isa";
  const size_t usable = probe_host_limits().usable_bytes();
  machine.host_limit = usable;
  const size_t reserve = std::min<size_t>(device.reserve, usable);
  machine.device_limit = device.memory_limit ? *device.memory_limit : usable - reserve;
  const PoolKind pool = device.chaos_seed ? PoolKind::plain : usual_pool();
  machine.workers = make_workers(pool, static_cast<int>(device.threads), machine.topology);
  machine.host = make_host_memory(*machine.workers);
  return machine;
}

std::unique_ptr<Device> open_device(const Config::Device& device, const Machine& machine) {
  gpu::OpenOptions options;
  options.workers = machine.workers.get();
  options.memory_limit = machine.device_limit;
  options.chaos_seed = device.chaos_seed;
  return gpu::open(machine.device_kind, options);
}

DataSets open_data(const Config& config, const Arch& arch) {
  const TokenFormat format = token_format_of(config.data.format);
  const int64_t length = config.data.sequence_length;
  DataSets data;
  data.train = open_files(config.data.train, format, arch.vocab, length);
  const DataSplit parts = split(*data.train, config.data.eval_split);
  data.train_range = parts.train;
  data.eval_range = parts.eval;
  if (!config.data.eval.empty()) {
    data.eval = open_files(config.data.eval, format, arch.vocab, length);
    data.eval_range = {0, data.eval->size()};
  }
  if (config.train.eval_tokens > 0)
    data.eval_range = first_tokens(data.eval_range, config.train.eval_tokens, length);
  return data;
}

SampleRange first_tokens(SampleRange range, int64_t tokens, int64_t length) {
  const auto most = static_cast<uint64_t>((tokens + length - 1) / length);
  return {range.begin, std::min(range.count, most)};
}

int64_t run_steps(const Config& config, const DataSets& data) {
  if (config.train.steps) return *config.train.steps;
  const double samples = *config.train.epochs * static_cast<double>(data.train_range.count);
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(samples / static_cast<double>(config.train_batch_size))));
}

TrainSetup make_setup(const Config& config, const Arch& arch, const ParamTable& table, int64_t steps,
                      Isa isa) {
  TrainSetup setup;
  setup.arch = arch;
  setup.dtype = config.dtype();
  setup.micro_batch = config.micro_batch_size;
  setup.length = config.data.sequence_length;
  setup.micro_batches = config.accumulation_steps;
  setup.order =
      config.train.order == Config::Train::Order::layer_major ? Order::layer_major : Order::micro_batch_major;
  setup.keep = config.activation_policy == Config::ActivationPolicy::keep ? Keep::all : Keep::input;
  setup.policy = policy_of(config);
  const bool predict = config.offload_optimizer.correction == Config::OffloadOptimizer::Correction::predict;
  setup.prediction = predict ? static_cast<float>(config.offload_optimizer.prediction) : 0.0f;
  setup.placement.assign(static_cast<size_t>(table.block_count()),
                         config.offloads_optimizer() ? Placement::host : Placement::device);
  const Config::Optimizer& optimizer = config.optimizer;
  setup.adam = {optimizer.betas[0], optimizer.betas[1], optimizer.eps, optimizer.weight_decay,
                optimizer.adam_w_mode};
  setup.lr = [schedule = schedule_of(config, steps)](int64_t n) { return lr_at(schedule, n); };
  setup.clip = config.gradient_clipping;
  setup.on_nonfinite =
      config.train.on_nonfinite == Config::Train::OnNonfinite::stop ? OnNonfinite::stop : OnNonfinite::skip;
  setup.max_skipped_in_a_row = config.train.max_skipped_in_a_row;
  setup.isa = isa;
  return setup;
}

}  // namespace tandem
