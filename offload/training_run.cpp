#include "offload/training_run.h"

#include <chrono>
#include <filesystem>

#include "core/io/atomic_file.h"
#include "offload/assembly.h"
#include "offload/banner.h"
#include "offload/checkpoint.h"
#include "offload/fit.h"
#include "offload/progress.h"
#include "offload/resume.h"
#include "offload/run_folder.h"
#include "offload/signals.h"
#include "offload/trainer.h"

namespace tandem {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The nearest folder above a path that exists: where its disk can be asked.
fs::path existing_parent(fs::path path) {
  std::error_code ignored;
  while (!path.empty() && !fs::exists(path, ignored)) path = path.parent_path();
  return path.empty() ? fs::path(".") : path;
}

uint64_t disk_free(const fs::path& path) {
  std::error_code error;
  const auto space = fs::space(existing_parent(path), error);
  return error ? UINT64_MAX : space.available;
}

FileSum hash_of(const std::string& text) {
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(text)));
  return {text.size(), hash.digest()};
}

class Run {
 public:
  Run(const Config& config, const RunOptions& options)
      : config_(config),
        options_(options),
        model_(open_model(config)),
        table_(model_.arch, config.optimizer.no_decay),
        data_(open_data(config, model_.arch)),
        steps_(run_steps(config, data_)),
        machine_(find_machine(config.device, config.where("device.kind"))),
        setup_(make_setup(config, model_.arch, table_, steps_, machine_.isa)),
        folder_(config.output_dir),
        resolved_(json::dump(resolved(config), 2) + "\n"),
        printer_(steps_, config.steps_per_print, options.quiet) {}

  RunResult run() {
    check_fits(config_, machine_, setup_, table_);
    check_disk();
    ResumeChoice resume = choose_checkpoint(folder_, options_.resume, table_);
    data_files_ = data_files(config_, data_);
    if (resume.checkpoint) {
      for (const std::string& note :
           check_differences(folder_, config_, options_.sets, *resume.checkpoint, data_files_))
        resume.notes.push_back(note);
    }
    if (!options_.quiet)
      fmt::print(stderr, "{}",
                 banner(config_, model_, machine_, data_, table_, setup_, steps_, disk_free(folder_.path())));
    for (const std::string& note : resume.notes) printer_.note(note);
    if (options_.dry_run) return {};
    return in_folder(resume.checkpoint.get());
  }

 private:
  void check_disk() const {
    const bool delayed = setup_.policy.schedule == Schedule::delayed;
    const uint64_t bytes = checkpoint_bytes(table_, setup_.dtype, delayed, delayed && setup_.prediction > 0);
    const uint64_t free = disk_free(folder_.path());
    CHECK(bytes <= free, Status::does_not_fit,
          fmt::format("a checkpoint needs {} ({} bytes) and the disk has {} free", byte_text(bytes), bytes,
                      byte_text(free)),
          folder_.path().string(), "free space, or an output_dir on another disk");
  }

  RunResult in_folder(Checkpoint* checkpoint) {
    std::error_code error;
    fs::create_directories(folder_.checkpoints(), error);
    if (error) throw system_error(error.value(), "create the run folder", folder_.path());
    const RunLock lock(folder_.path());
    write_atomically(folder_.resolved_config(), resolved_);
    folder_.cut_metrics(checkpoint != nullptr ? checkpoint->state().step : 0);
    metrics_.emplace(folder_.metrics());
    const StopSignals signals;
    device_ = open_device(config_.device, machine_);
    start(checkpoint);
    loop(signals);
    finish();
    return result_;
  }

  void start(Checkpoint* checkpoint) {
    TrainState state;
    if (checkpoint != nullptr) {
      state = checkpoint->state().train;
      sample_ = checkpoint->state().sample;
      // Without weights that are one version old the first step can only read the masters' own.
      if (!checkpoint->has(Plane::lagged))
        state.policy.zero_until_step = std::max(state.policy.zero_until_step, state.policy.step + 1);
      trainer_ = make_trainer(state, *checkpoint);
      result_.checkpoint = checkpoint->folder().string();
    } else {
      state.policy = StepPolicy::initial(setup_.policy);
      std::unique_ptr<WeightSource> weights;
      if (model_.folder)
        weights = std::make_unique<FolderWeights>(*model_.folder);
      else
        weights = std::make_unique<SeededWeights>(table_, config_.train.seed, model_.arch.initializer_range);
      FreshPlanes planes(table_, *weights);
      trainer_ = make_trainer(state, planes);
    }
    trainer_first_ = trainer_->next_step();
    result_.updates = state.progress.updates;
    result_.skipped = state.progress.skipped;
  }

  std::unique_ptr<Trainer> make_trainer(const TrainState& state, PlaneSource& planes) {
    return std::make_unique<Trainer>(setup_, table_, *device_, *machine_.host, *machine_.workers, state,
                                     planes);
  }

  void loop(const StopSignals& signals) {
    const DataLoader loader(
        *data_.train, data_.train_range,
        config_.data.shuffle ? std::optional<uint64_t>(config_.train.seed) : std::nullopt);
    std::vector<int32_t> tokens(static_cast<size_t>(config_.train_batch_size * setup_.length)),
        targets(tokens.size());
    const auto view = [&](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {config_.train_batch_size, setup_.length});
    };
    const Stopwatch watch;
    result_.stopped_by = "steps";
    for (int64_t done = trainer_->next_step(); done < steps_; done = trainer_->next_step()) {
      if (const Status asked = signals.asked(); asked != Status::ok) {
        result_.stopped_by = "signal";
        result_.status = asked;
        break;
      }
      if (options_.max_steps && done >= *options_.max_steps) {
        result_.stopped_by = "max_steps";
        break;
      }
      loader.fill(sample_, view(tokens), view(targets));
      trainer_->step({tokens, targets});
      sample_ += static_cast<uint64_t>(config_.train_batch_size);
      report();
      between_steps(done + 1);
    }
    trainer_->quiesce();
    report();
    result_.seconds = watch.seconds();
    result_.step = trainer_->next_step();
  }

  void between_steps(int64_t done) {
    const bool last = done == steps_;
    if (!last && config_.train.eval_every > 0 && done % config_.train.eval_every == 0) evaluate(done);
    if (!last && config_.checkpoint.every > 0 && done % config_.checkpoint.every == 0) save();
  }

  /// Lines for all steps whose updates are known by now.
  void report() {
    while (const std::optional<StepReport> report = trainer_->take_report()) {
      const Decision& d = report->decision;
      const bool measured = d.step != trainer_first_ && d.step != paused_before_;
      if (measured) speed_.add(d.tokens, report->times.total_ms * 1e-3);
      const double samples = static_cast<double>(sample_at(d.step + 1));
      metrics_->write(metrics_line(*report, samples / static_cast<double>(data_.train_range.count), now(),
                                   speed_.tokens_per_second(), memory_use()));
      printer_.step(*report, speed_);
      if (d.skipped)
        printer_.note(
            d.tokens == 0
                ? fmt::format("warning: step {} had no trained token and was skipped", d.step + 1)
                : fmt::format("warning: the gradient of step {} was not finite; the step was skipped",
                              d.step + 1),
            true);
      result_.tokens += d.tokens;
      if (!d.skipped) result_.loss = d.loss;
      result_.updates = d.updates;
      result_.skipped += d.skipped ? 1 : 0;
    }
    result_.tokens_per_s = speed_.tokens_per_second();
  }

  /// The run's next sample after so many steps.
  [[nodiscard]] uint64_t sample_at(int64_t step) const {
    return sample_ - static_cast<uint64_t>((trainer_->next_step() - step) * config_.train_batch_size);
  }

  [[nodiscard]] MemoryUse memory_use() const {
    const MemoryPlan plan = plan_memory(setup_, table_);
    return {device_->counters().total().peak, plan.pinned_bytes(), machine_.host->counters().total().peak};
  }

  /// After `done` steps.
  void evaluate(int64_t done) {
    if (data_.eval_range.count == 0) return;
    const int64_t reads = trainer_->begin_evaluation();
    const int64_t version = done == steps_ ? done : reads;  // the last one has the rounded masters
    const DataLoader loader(data_.eval_set(), data_.eval_range, std::nullopt);
    double loss = 0;
    int64_t count = 0;
    std::vector<int32_t> tokens, targets;
    for (uint64_t k = 0; k < data_.eval_range.count; k += static_cast<uint64_t>(setup_.micro_batch)) {
      const auto rows =
          std::min<int64_t>(setup_.micro_batch, static_cast<int64_t>(data_.eval_range.count - k));
      tokens.resize(static_cast<size_t>(rows * setup_.length));
      targets.resize(tokens.size());
      loader.fill(k, Tensor(tokens.data(), DType::i32, {rows, setup_.length}),
                  Tensor(targets.data(), DType::i32, {rows, setup_.length}));
      loss += trainer_->evaluate({tokens, targets});
      count += rows * setup_.length;
    }
    result_.eval_loss = loss / static_cast<double>(count);
    metrics_->write(json::Object{
        {"step", done},
        {"eval", true},
        {"eval_loss", std::isfinite(*result_.eval_loss) ? json::Value(*result_.eval_loss) : json::Value()},
        {"eval_tokens", count},
        {"eval_version", version}});
    printer_.note(fmt::format("step {}: held-out loss {:.4f} over {} tokens (weights of version {})", done,
                              *result_.eval_loss, count, version));
    paused_before_ = trainer_->next_step();
  }

  void save() {
    trainer_->quiesce();
    report();
    const Stopwatch watch;
    RunState state;
    state.step = trainer_->next_step();
    state.sample = sample_;
    state.epoch = static_cast<double>(sample_) / static_cast<double>(data_.train_range.count);
    state.seed = config_.train.seed;
    state.train = trainer_->state();
    state.dtype = setup_.dtype;
    state.data = data_files_;
    state.config_hash = hex(hash_of(resolved_).xxh3);
    CheckpointModel model{table_, setup_.dtype, model_.config_json, model_.form(), {}, {}};
    model.model = config_.model.path;
    model.tokenizer = config_.model.tokenizer ? config_.model.tokenizer : config_.model.path;
    const fs::path path = folder_.checkpoint(state.step);
    const uint64_t bytes = save_checkpoint(path, *trainer_, model, state);
    folder_.prune(config_.checkpoint.keep);
    result_.checkpoint = path.string();
    printer_.note(
        fmt::format("saved {} ({} in {})", path.string(), byte_text(bytes), duration(watch.seconds())));
    paused_before_ = trainer_->next_step();
  }

  /// The last save, and at the run's end the evaluation of the rounded masters.
  void finish() {
    if (trainer_->next_step() != trainer_first_ || result_.checkpoint.empty()) save();
    if (trainer_->next_step() < steps_ || data_.eval_range.count == 0) return;
    trainer_->finalize();
    evaluate(steps_);
  }

  const Config& config_;
  const RunOptions& options_;
  const ModelSource model_;
  const ParamTable table_;
  const DataSets data_;
  const int64_t steps_;
  const Machine machine_;
  const TrainSetup setup_;
  const RunFolder folder_;
  const std::string resolved_;
  ProgressPrinter printer_;
  std::vector<DataFile> data_files_;
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  SpeedWindow speed_;
  uint64_t sample_ = 0;
  int64_t trainer_first_ = 0;   ///< this process's first step
  int64_t paused_before_ = -1;  ///< the step that a save or an evaluation came before
  RunResult result_;
};

}  // namespace

RunResult train(const Config& config, const RunOptions& options) {
  Run run(config, options);
  RunResult result = run.run();
  result.run = config.output_dir;
  return result;
}

}  // namespace tandem
