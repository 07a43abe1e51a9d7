// How much of a training step its matrix products are, and how much the engine. Builds the trainer of a
// config on the host device and times, in turns, whole steps (forward, backward, update, until the new
// weights have arrived), the step's products alone: the very same calls on the same tensors, in the same
// tiles, on the same threads; and the step on the null device, where everything is enqueued and waited for
// and nothing computed. Prints JSON.
//   ./dev bench step_bench [--config configs/bench_124m.json] [--set KEY=VALUE]... [--rounds 5]
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>

#include "core/io/json.h"
#include "core/run/config.h"
#include "gpu/backend.h"
#include "gpu/host/host_device.h"
#include "gpu/host/host_ops.h"
#include "gpu/null/null_workers.h"
#include "gpu/null/recording.h"
#include "gpu/null/reserved_memory.h"
#include "offload/assembly.h"
#include "offload/fit.h"
#include "offload/memory_plan.h"
#include "offload/planes.h"
#include "offload/trainer.h"

namespace {

using namespace tandem;

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Kernels on their way to the device: keeps the products of a step for later, and each kernel's time.
class Recorder : public gpu::KernelQueue {
 public:
  explicit Recorder(gpu::KernelQueue& device) : device_(device) {}

  void enqueue(Stream& stream, gpu::Kernel kernel) override {
    if (recording_ && kernel.name.starts_with("linear_")) products_.push_back(kernel);
    if (recording_) {
      kernel.body = [this, name = kernel.name, body = std::move(kernel.body)](gpu::KernelContext& context) {
        const double begin = seconds_of(CLOCK_MONOTONIC);
        body(context);
        seconds_[name] += seconds_of(CLOCK_MONOTONIC) - begin;
      };
    }
    device_.enqueue(stream, std::move(kernel));
  }
  void record(bool on) { recording_ = on; }
  void replay(Stream& stream) {
    for (const gpu::Kernel& product : products_) device_.enqueue(stream, product);
  }

  [[nodiscard]] double product_flops() const {
    double flops = 0;
    for (const gpu::Kernel& product : products_) {
      const Tensor &c = product.writes.front(), &a = product.reads.front();  // [m, n]; [m, k] or [k, m]
      flops += 2.0 * static_cast<double>(a.numel()) * static_cast<double>(c.dim(1));
    }
    return flops;
  }
  [[nodiscard]] size_t product_count() const { return products_.size(); }
  [[nodiscard]] json::Value kernel_milliseconds() const {
    json::Object out;
    for (const auto& [name, seconds] : seconds_) out.push_back({name, std::round(1e4 * seconds) / 10});
    return out;
  }

 private:
  gpu::KernelQueue& device_;
  bool recording_ = false;
  std::vector<gpu::Kernel> products_;
  std::map<std::string, double> seconds_;  // of streams whose kernels run one after the other
};

/// Wall and processor time of repeated work.
class Samples {
 public:
  template <class Work>
  void time(const Work& work) {
    const double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    work();
    wall_.push_back(1e3 * (seconds_of(CLOCK_MONOTONIC) - wall));
    cpu_.push_back(1e3 * (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu));
  }
  [[nodiscard]] double median_ms() const { return median(wall_); }
  [[nodiscard]] double median_cpu_ms() const { return median(cpu_); }
  [[nodiscard]] const std::vector<double>& wall() const { return wall_; }
  [[nodiscard]] json::Value as_json() const {
    json::Array all;
    for (const double ms : wall_) all.push_back(tenths(ms));
    const auto [least, most] = std::minmax_element(wall_.begin(), wall_.end());
    return json::Object{{"median_ms", tenths(median_ms())},
                        {"least_ms", tenths(*least)},
                        {"spread", std::round(1e3 * (*most - *least) / median_ms()) / 1e3},
                        {"median_cpu_ms", tenths(median_cpu_ms())},
                        {"ms", std::move(all)}};
  }
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
  }
  static double tenths(double value) { return std::round(10 * value) / 10; }

 private:
  std::vector<double> wall_, cpu_;
};

struct Options {
  std::string config = TANDEM_SOURCE_DIR "/configs/bench_124m.json";
  std::vector<std::string> sets;
  int rounds = 5, warmup = 2;
};

/// The same trainer where nothing is computed.
class Engine {
 public:
  Engine(const TrainSetup& setup, const ParamTable& table)
      : host_(recording_.memory(), kWritten),
        device_(gpu::open("null", options())),
        trainer_(setup, table, *device_, host_, workers_) {}
  void step(const StepTokens& tokens) {
    trainer_.step(tokens);
    trainer_.quiesce();
  }

 private:
  gpu::OpenOptions options() {
    gpu::OpenOptions options;
    options.recording = &recording_;
    return options;
  }
  static constexpr std::array<std::string_view, 2> kWritten{"batches",
                                                            "tables"};  // by the main thread itself
  gpu::Recording recording_{gpu::Operations::digested};
  gpu::NullWorkers workers_;
  gpu::NullMemory host_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
};

/// The trainer of a config, as `tandem train` makes it.
class Bench {
 public:
  explicit Bench(const Config& config)
      : config_(config),
        model_(open_model(config)),
        table_(model_.arch, config.optimizer.no_decay),
        data_(open_data(config, model_.arch)),
        machine_(find_machine(config.device, config.where("device.kind"))),
        setup_(make_setup(config, model_.arch, table_, 1000, machine_)),
        planned_(planned_bytes()),
        device_(*machine_.workers, {machine_.device_limit, std::nullopt, false},
                [this](gpu::KernelQueue& queue) {
                  recorder_ = std::make_unique<Recorder>(queue);
                  return gpu::make_host_ops(*recorder_);
                }),
        stream_(device_.stream("products", Purpose::compute, 0)),
        engine_(setup_, table_),
        tokens_(static_cast<size_t>(config.train_batch_size * setup_.length)),
        targets_(tokens_.size()) {
    SeededWeights weights(table_, config.train.seed, model_.arch.initializer_range);
    FreshPlanes planes(weights);
    TrainState state;
    state.policy = StepPolicy::initial(setup_.policy);
    trainer_ =
        std::make_unique<Trainer>(setup_, table_, device_, *machine_.host, *machine_.workers, state, planes);
  }

  json::Value run(int rounds, int warmup) {
    for (int i = 0; i < warmup; ++i) step();
    recorder_->record(true);
    step();
    recorder_->record(false);
    products();
    Samples steps, alone, engine;
    for (int i = 0; i < rounds; ++i) {
      steps.time([&] { step(); });
      alone.time([&] { products(); });
      engine.time([&] { engine_.step({tokens_, targets_}); });
    }
    return report(steps, alone, engine);
  }

 private:
  [[nodiscard]] size_t planned_bytes() const {
    const MemoryPlan plan = plan_memory(setup_, table_);
    return plan.device_bytes() + plan.host_bytes() + fixed_bytes(machine_, setup_, table_).total();
  }

  /// A whole step: with nothing of it left to do.
  void step() {
    const DataLoader loader(*data_.train, data_.train_range, config_.train.seed);
    const auto view = [&](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {config_.train_batch_size, setup_.length});
    };
    loader.fill(sample_, view(tokens_), view(targets_));
    sample_ += static_cast<uint64_t>(config_.train_batch_size);
    trainer_->step({tokens_, targets_});
    trainer_->quiesce();
  }

  /// Their results land where a step's do; the next step writes all of it anew.
  void products() {
    recorder_->replay(*stream_);
    stream_->record().wait();
  }

  /// The median of one over the other, round by round.
  static double share(const Samples& part, const Samples& whole) {
    std::vector<double> ratios;
    for (size_t i = 0; i < whole.wall().size(); ++i) ratios.push_back(part.wall()[i] / whole.wall()[i]);
    return Samples::median(ratios);
  }

  [[nodiscard]] json::Value report(const Samples& steps, const Samples& alone, const Samples& engine) const {
    const double threads = machine_.workers->count();
    const auto thousandths = [](double x) { return std::round(1e3 * x) / 1e3; };
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double peak = 1024.0 * static_cast<double>(usage.ru_maxrss),
                 planned = static_cast<double>(planned_);
    return json::Object{
        {"parameters", table_.parameter_count()},
        {"dtype", std::string(name_of(setup_.dtype))},
        {"tokens", setup_.micro_batches * setup_.tokens_per_micro_batch()},
        {"workers", machine_.workers->describe()},
        {"step", steps.as_json()},
        {"products", alone.as_json()},
        {"products_share", thousandths(share(alone, steps))},
        {"products_share_of_cpu_time", thousandths(alone.median_cpu_ms() / steps.median_cpu_ms())},
        {"engine_ms", std::round(1e3 * engine.median_ms()) / 1e3},
        {"engine_share", std::round(1e5 * share(engine, steps)) / 1e5},
        // 1 = the machine was ours alone
        {"cpu_share", thousandths(alone.median_cpu_ms() / alone.median_ms() / threads)},
        {"tokens_per_s", Samples::tenths(1e3 * static_cast<double>(tokens_.size()) / steps.median_ms())},
        {"product_calls", recorder_->product_count()},
        {"product_gflop", Samples::tenths(1e-9 * recorder_->product_flops())},
        {"product_gflop_per_s", Samples::tenths(1e-6 * recorder_->product_flops() / alone.median_ms())},
        {"kernel_ms", recorder_->kernel_milliseconds()},
        {"planned_mib", std::round(planned / (1 << 20))},
        {"peak_resident_mib", std::round(peak / (1 << 20))},
        {"peak_over_planned", thousandths(peak / planned)}};
  }

  const Config config_;
  const ModelSource model_;
  const ParamTable table_;
  const DataSets data_;
  const Machine machine_;
  const TrainSetup setup_;
  const size_t planned_;
  std::unique_ptr<Recorder> recorder_;
  gpu::HostDevice device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Trainer> trainer_;
  Engine engine_;
  std::vector<int32_t> tokens_, targets_;
  uint64_t sample_ = 0;
};

/// "model name : AMD EPYC" of /proc/cpuinfo.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string first_word(const char* path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A training step and its matrix products alone, in turns");
  app.add_option("--config", options.config, "The config to build the trainer of");
  app.add_option("--set", options.sets, "KEY=VALUE over the config")->allow_extra_args(false);
  app.add_option("--rounds", options.rounds, "Pairs of a step and its products")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps before them")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    const char* core = std::getenv("OPENBLAS_CORETYPE");
    const std::string load = first_word("/proc/loadavg");
    json::Value out = Bench(load_config(options.config, options.sets)).run(options.rounds, options.warmup);
    out.set("cpu", cpu_name());
    out.set("openblas_coretype", core == nullptr ? json::Value() : json::Value(core));
    out.set("load_before", load);
    std::string command;
    for (int i = 0; i < argc; ++i) command += std::string(i > 0 ? " " : "") + argv[i];
    out.set("command", command);
    fmt::print("{}\n", json::dump(out, 1));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
