#include "offload/assembly.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/io/hf_config.h"
#include "cpu_adam/host_memory.h"
#include "cpu_adam/make_workers.h"
#include "gpu/backend.h"
#include "offload/checkpoint_damage.h"
#include "offload/choices.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kConfigMost = uint64_t{16} << 20;  // bytes of a config.json

/// Bytes of tokens that are looked at before a run, over all files: a second or two of reading. What lies
/// beyond is checked as it is read.
constexpr uint64_t kTokensChecked = uint64_t{1} << 30;

std::unique_ptr<SampleSet> open_files(const std::vector<std::string>& paths, TokenFormat format,
                                      int64_t vocab, int64_t length) {
  std::vector<TokenFile> files;
  for (const std::string& path : paths) {
    files.emplace_back(path, format, vocab);
    files.back().check_tokens(kTokensChecked / paths.size());
  }
  return std::make_unique<SampleSet>(std::move(files), length);
}

/// "auto": the first usable card, else the CPU, with the reason.
void choose_device(const Config::Device& device, const std::string& where, Machine& machine) {
  machine.device_kind = device.kind;
  if (device.kind == "auto") {
    const std::string why = gpu::why_absent("cuda");
    machine.device_kind = why.empty() ? "cuda:0" : "host";
    machine.device_why = why.empty() ? "auto: the first card" : "auto: no CUDA device (" + why + ")";
    return;
  }
  const std::string why = gpu::why_absent(device.kind);
  CHECK(why.empty(), Status::usage, fmt::format("device \"{}\" can't be used: {}", device.kind, why), where,
        "\"auto\" or \"host\"");
}

std::vector<std::string> token_files(std::vector<std::string> paths) {
  for (std::string& path : paths) path = token_path(path);
  return paths;
}

/// The paths that the config names under a key; none if it names none.
std::vector<std::string> paths_under(const Config& config, std::string_view key) {
  const auto one = [](const std::optional<std::string>& path) {
    return path ? std::vector<std::string>{*path} : std::vector<std::string>{};
  };
  if (key == "model.path") return one(config.model.path);
  if (key == "model.tokenizer") return one(config.model.tokenizer);
  if (key == "data.train") return token_files(config.data.train);
  if (key == "data.eval") return token_files(config.data.eval);
  ASSERT(key == "model.config", "no path under {}", key);
  const std::string* path = config.model.config.string();
  return path ? std::vector<std::string>{*path} : std::vector<std::string>{};
}

/// Why nothing can be read at a path; empty if something is there.
std::string why_nothing(const std::string& path) {
  std::error_code error;
  if (fs::status(path, error).type() != fs::file_type::not_found) return {};
  const fs::path target = fs::read_symlink(path, error);
  if (error) return "does not exist";
  return fmt::format("is a link to \"{}\", which does not exist", printable(target.string()));
}

Schedule schedule_named(Config::OffloadOptimizer::Schedule name) {
  switch (name) {
    case Config::OffloadOptimizer::Schedule::synchronous:
      return Schedule::synchronous;
    case Config::OffloadOptimizer::Schedule::exact:
      return Schedule::exact;
    case Config::OffloadOptimizer::Schedule::delayed:
      return Schedule::delayed;
  }
  return Schedule::synchronous;
}

PolicyOptions policy_of(const Config& config) {
  PolicyOptions policy;
  policy.schedule = schedule_named(config.offload_optimizer.schedule);
  policy.warmup_steps = config.offload_optimizer.warmup_steps;
  policy.staleness_limit = config.offload_optimizer.staleness_limit;
  policy.loss_scale = loss_scaling(config);
  return policy;
}

}  // namespace

void check_names(const Config& config, std::span<const std::string_view> keys) {
  std::vector<Error> errors;
  for (const std::string_view key : keys)
    for (const std::string& path : paths_under(config, key))
      if (const std::string why = why_nothing(path); !why.empty())
        errors.emplace_back(
            Status::usage, fmt::format("{} names \"{}\", which {}", key, printable(path), why),
            config.where(key), "check the path; a relative one starts at the config's folder");
  const auto collect = [&](std::string_view key, auto&& check) {
    try {
      check();
    } catch (const Error& error) {
      errors.emplace_back(error.status(), error.message(), config.where(key), error.hint());
    }
  };
  collect("device.kind", [&] {
    Machine machine;
    choose_device(config.device, "", machine);
  });
  collect("device.isa", [&] { (void)choose_isa(config.device.isa); });
  if (!errors.empty()) throw ErrorList(std::move(errors));
}

ModelSource open_model(const Config& config) {
  ModelSource source;
  if (config.model.path) {
    refuse_damaged_weights(*config.model.path);
    source.folder = std::make_unique<ModelFolder>(*config.model.path, weights_access(config.model.mmap));
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
  machine.pci_bus_id = gpu::pci_bus_id(machine.device_kind);
  machine.topology = discover_topology();
  machine.isa = choose_isa(device.isa);
  machine.isa_why = device.isa == "auto" ? "the widest that this CPU has" : "device.isa";
  machine.limits = probe_host_limits();
  const size_t free = machine.limits.resident_bytes();
  machine.device_limit =
      device.memory_limit ? *device.memory_limit : free - std::min<size_t>(device.reserve, free);
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

namespace {

void limit_evaluation(const Config& config, DataSets& data) {
  if (config.train.eval_tokens > 0)
    data.eval_range = first_tokens(data.eval_range, config.train.eval_tokens, config.data.sequence_length);
}

}  // namespace

DataSets open_eval_files(const std::vector<std::string>& paths, TokenFormat format, int64_t vocab,
                         int64_t length) {
  DataSets data;
  data.eval = open_files(paths, format, vocab, length);
  data.eval_range = {0, data.eval->size()};
  return data;
}

DataSets open_data(const Config& config, const Arch& arch) {
  const int64_t length = config.data.sequence_length;
  DataSets data;
  if (!config.data.eval.empty())
    data = open_eval_files(config.data.eval, config.data.format, arch.vocab, length);
  data.train = open_files(config.data.train, config.data.format, arch.vocab, length);
  const DataSplit parts = split(*data.train, config.data.eval_split);
  data.train_range = parts.train;
  if (!data.eval) data.eval_range = parts.eval;
  limit_evaluation(config, data);
  check_targets(*data.train, data.train_range);
  if (data.eval_range.count > 0) check_targets(data.eval_set(), data.eval_range);
  return data;
}

DataSets open_eval_data(const Config& config, const Arch& arch) {
  if (config.data.eval.empty()) return open_data(config, arch);
  DataSets data =
      open_eval_files(config.data.eval, config.data.format, arch.vocab, config.data.sequence_length);
  limit_evaluation(config, data);
  return data;
}

SampleRange first_tokens(SampleRange range, int64_t tokens, int64_t length) {
  const auto most = static_cast<uint64_t>(std::max<int64_t>(1, tokens / length));
  return {range.begin, std::min(range.count, most)};
}

int64_t run_steps(const Config& config, const DataSets& data) {
  if (config.train.steps) return *config.train.steps;
  const double samples = *config.train.epochs * static_cast<double>(data.train_range.count);
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(samples / static_cast<double>(config.train_batch_size))));
}

TrainSetup make_setup(const Config& config, const Arch& arch, const ParamTable& table, int64_t steps,
                      const Machine& machine) {
  TrainSetup setup;
  setup.arch = arch;
  setup.dtype = config.dtype();
  setup.micro_batch = config.micro_batch_size;
  setup.length = config.data.sequence_length;
  setup.micro_batches = config.accumulation_steps;
  setup.order =
      config.train.order == Config::Train::Order::layer_major ? Order::layer_major : Order::micro_batch_major;
  setup.keep = keep_of(config.activation_policy);
  setup.policy = policy_of(config);
  const bool predict = config.offload_optimizer.correction == Config::OffloadOptimizer::Correction::predict;
  setup.prediction = predict ? static_cast<float>(config.offload_optimizer.prediction) : 0.0f;
  const double ratio = config.offloads_optimizer() ? config.offload_optimizer.ratio.value_or(1) : 0;
  setup.placement = place_by_ratio(table, ratio);
  setup.open.activations = config.activation_policy == Config::ActivationPolicy::automatic;
  setup.open.embedding = config.offloads_optimizer() && !config.offload_optimizer.ratio;
  if (config.streams_weights()) setup.window = static_cast<int>(config.offload_param.buffer_count);
  const Config::Optimizer& optimizer = config.optimizer;
  setup.adam = {optimizer.betas[0], optimizer.betas[1], optimizer.eps, optimizer.weight_decay,
                optimizer.adam_w_mode};
  setup.states = {config.offload_optimizer.masters, config.offload_optimizer.moments};
  setup.seed = config.train.seed;
  setup.lr = [schedule = schedule_of(config, steps)](int64_t n) { return lr_at(schedule, n); };
  setup.clip = config.gradient_clipping;
  setup.on_nonfinite =
      config.train.on_nonfinite == Config::Train::OnNonfinite::stop ? OnNonfinite::stop : OnNonfinite::skip;
  setup.max_skipped_in_a_row = config.train.max_skipped_in_a_row;
  setup.isa = machine.isa;
  settle(machine, table, setup);
  return setup;
}

}  // namespace tandem
