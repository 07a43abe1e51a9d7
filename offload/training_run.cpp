#include "offload/training_run.h"

#include <chrono>
#include <cmath>
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
#include "offload/trace.h"
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

std::string hash_of(const std::string& text) {
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hex(hash.digest());
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  const fs::path relative =
      fs::weakly_canonical(path, ignored).lexically_relative(fs::weakly_canonical(folder, ignored));
  return !relative.empty() && *relative.begin() != "..";
}

/// A save or an evaluation is due after so many steps; 0 = never.
bool is_due(int64_t done, int64_t every) { return every > 0 && done % every == 0; }

class Run {
 public:
  Run(const Config& config, const RunOptions& options)
      : config_(config),
        options_(options),
        model_(open_model(config)),
        table_(model_.arch, config.optimizer.no_decay, config.model.freeze),
        data_(open_data(config, model_.arch)),
        steps_(run_steps(config, data_)),
        machine_(find_machine(config.device, config.where("device.kind"))),
        setup_(make_setup(config, model_.arch, table_, steps_, machine_)),
        pinned_bytes_(plan_memory(setup_, table_).most_pinned_bytes()),
        folder_(config.output_dir),
        resolved_(json::dump(resolved(config), 2) + "\n"),
        printer_(steps_, config.steps_per_print, options.quiet) {}

  RunResult run() {
    check_fits(config_, machine_, setup_, table_);
    check_inputs();
    choose();
    const uint64_t disk_free = free_disk_bytes(folder_.path());
    check_disk(disk_free);
    announce(disk_free);
    if (!options_.dry_run) in_folder();
    return result_;
  }

 private:
  /// Checkpoints come and go: what the run reads must not lie among its own.
  void check_inputs() const {
    for (const auto& [key, path] :
         {std::pair("model.path", config_.model.path), std::pair("model.tokenizer", config_.model.tokenizer)})
      CHECK(!path || !lies_in(*path, folder_.checkpoints()), Status::usage,
            fmt::format("{} lies among the checkpoints of this run, which removes old ones", key),
            config_.where(key), "another output_dir, or --resume to go on with that run");
  }

  /// The checkpoint to start from, if any. Nobody may change the folder from here on.
  void choose() {
    std::error_code ignored;
    if (options_.resume && fs::exists(folder_.lock(), ignored)) lock_.emplace(folder_.lock());
    choice_ = choose_checkpoint(folder_, options_.resume);
    data_files_ = data_files(data_);
    if (!choice_.checkpoint) return;
    for (std::string& note :
         check_differences(folder_, config_, model_.arch, options_.sets, *choice_.checkpoint, data_files_))
      choice_.notes.push_back(std::move(note));
    saved_.emplace(*choice_.checkpoint, table_);
  }

  [[nodiscard]] uint64_t bytes_per_save() const {
    return checkpoint_bytes(table_, setup_.dtype, largest_save(setup_, table_, config_.checkpoint.states));
  }

  void check_disk(uint64_t disk_free) const {
    const uint64_t bytes = bytes_per_save();
    CHECK(bytes <= disk_free, Status::does_not_fit,
          fmt::format("a checkpoint needs {} ({} bytes) and the disk has {} free ({} bytes)",
                      byte_text(bytes), bytes, byte_text(disk_free), disk_free),
          folder_.path().string(), "free space, or an output_dir on another disk");
  }

  /// While one is saved, as many as are kept lie beside it.
  void warn_of_disk(uint64_t disk_free) {
    const int64_t every = config_.checkpoint.every, saves = every > 0 ? (steps_ + every - 1) / every : 1;
    const int64_t there = std::ssize(folder_.saved_steps());
    const int64_t kept = config_.checkpoint.keep + (config_.checkpoint.keep_best ? 1 : 0);
    const int64_t more = std::min(kept + 1, saves) - there;
    const uint64_t bytes = static_cast<uint64_t>(std::max<int64_t>(more, 0)) * bytes_per_save();
    if (bytes > disk_free)
      printer_.note(fmt::format("warning: {} more checkpoints need {} ({} bytes), the disk has {} free: a "
                                "later save will fail; a lower checkpoint.keep needs less",
                                more, byte_text(bytes), bytes, byte_text(disk_free)),
                    true);
  }

  void announce(uint64_t disk_free) {
    if (!options_.quiet)
      fmt::print(stderr, "{}", banner(config_, model_, machine_, data_, table_, setup_, steps_, disk_free));
    warn_of_disk(disk_free);
    if (config_.trace.enabled && config_.trace.start_step > steps_)
      printer_.note(
          fmt::format("warning: trace.start_step {} is after the last of {} steps: there will be no "
                      "trace.json",
                      config_.trace.start_step, steps_),
          true);
    for (const std::string& warning : choice_.warnings) printer_.note(warning, true);
    for (const std::string& note : choice_.notes) printer_.note(note);
  }

  void in_folder() {
    std::error_code error;
    fs::create_directories(folder_.checkpoints(), error);
    if (error) throw system_error(error.value(), "create the run folder", folder_.path());
    if (!lock_) {
      lock_.emplace(folder_.lock());
      if (!options_.resume) choose_checkpoint(folder_, {});  // another run may have been here since
    }
    const StopSignals signals;
    signals_ = &signals;
    try {
      start();
      loop();
      finish();
    } catch (...) {
      write_trace();
      if (!result_.checkpoint.empty())
        printer_.note("the newest complete checkpoint is " + result_.checkpoint, true);
      throw;
    }
  }

  /// Nothing in the folder changes before the weights are loaded.
  void start() {
    device_ = open_device(config_.device, machine_);
    choice_.checkpoint ? start_from(*choice_.checkpoint) : start_afresh();
    first_step_ = trainer_->next_step();
    if (config_.trace.enabled) {
      const int64_t begin = config_.trace.start_step - 1;
      tracer_.emplace(*device_, table_, begin, begin + config_.trace.steps);
      tracer_->next(first_step_);
    }
    speed_.leave_out(first_step_);
    write_atomically(folder_.resolved_config(), resolved_);
    kept_metrics_ = folder_.cut_metrics(first_step_);
    metrics_.emplace(folder_.metrics());
  }

  void start_from(const Checkpoint& checkpoint) {
    TrainState state = checkpoint.state().train;
    PolicyState& policy = state.policy;
    // Without weights that are one version old the first step can only read the masters' own.
    if (!checkpoint.planes().contains(Plane::lagged) &&
        StepPolicy(setup_.policy, policy).read(policy.step) < policy.step)
      policy.zero_until_step = policy.step + 1;
    make_trainer(state, *saved_);
    sample_ = checkpoint.state().sample;
    saved_step_ = checkpoint.state().step;
    result_.checkpoint = checkpoint.folder().string();
    result_.updates = state.progress.updates;
    result_.skipped = state.progress.skipped;
  }

  void start_afresh() {
    std::unique_ptr<WeightSource> weights;
    if (model_.folder)
      weights = std::make_unique<FolderWeights>(*model_.folder);
    else
      weights = std::make_unique<SeededWeights>(table_, config_.train.seed, model_.arch.initializer_range);
    FreshPlanes planes(*weights);
    make_trainer({StepPolicy::initial(setup_.policy), {}}, planes);
  }

  void make_trainer(const TrainState& state, PlaneSource& planes) {
    trainer_ =
        std::make_unique<Trainer>(setup_, table_, *device_, *machine_.host, *machine_.workers, state, planes);
  }

  void loop() {
    const DataLoader loader(
        *data_.train, data_.train_range,
        config_.data.shuffle ? std::optional<uint64_t>(config_.train.seed) : std::nullopt);
    std::vector<int32_t> tokens(static_cast<size_t>(config_.train_batch_size * setup_.length)),
        targets(tokens.size());
    const auto view = [&](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {config_.train_batch_size, setup_.length});
    };
    const Stopwatch watch;
    // A signal may have cut the evaluation short that came before the save.
    if (first_step_ > 0 && !kept_metrics_.evaluated) evaluate_if_due();
    while (!ends()) {
      device_->range("load data");
      loader.fill(sample_, view(tokens), view(targets));
      trainer_->step({tokens, targets});
      if (tracer_) tracer_->next(trainer_->next_step());
      device_->range("report");
      sample_ += static_cast<uint64_t>(config_.train_batch_size);
      report();
      evaluate_if_due();
      if (trainer_->next_step() < steps_ && is_due(trainer_->next_step(), config_.checkpoint.every)) save();
    }
    device_->range("quiesce");
    trainer_->quiesce();
    report();
    write_trace();
    result_.seconds = watch.seconds();
    result_.step = trainer_->next_step();
  }

  /// Whether no further step follows; the result then says why.
  bool ends() {
    const int64_t done = trainer_->next_step();
    if (done >= steps_)
      result_.stopped_by = "steps";
    else if (signals_->asked() != Status::ok)
      stop_by_signal();
    else if (options_.max_steps && done >= *options_.max_steps)
      result_.stopped_by = "max_steps";
    return !result_.stopped_by.empty();
  }

  void stop_by_signal() {
    result_.stopped_by = "signal";
    result_.status = signals_->asked();
  }

  /// Lines for all steps whose updates are known by now.
  void report() {
    while (const std::optional<StepReport> report = trainer_->take_report()) {
      const Decision& d = report->decision;
      speed_.add(d.step, d.tokens, report->times.total_ms * 1e-3);
      metrics_->write(metrics_line(*report, context_of(*report)));
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
      if (tracer_) tracer_->reported(*report);
    }
    if (tracer_ && tracer_->complete()) write_trace();
    result_.tokens_per_s = speed_.tokens_per_second();
  }

  /// Of the steps that have been traced so far, if any. No reason to end a run where it can't be written.
  void write_trace() {
    if (!tracer_ || tracer_->steps().empty()) return;
    try {
      const std::string steps = tracer_->steps();
      write_atomically(folder_.trace(), tracer_->finish());
      printer_.note(fmt::format("traced {}: {}", steps, folder_.trace().string()));
    } catch (const Error& error) {
      printer_.note(fmt::format("warning: no trace: {} ({})", error.message(), error.where()), true);
    }
    tracer_.reset();
  }

  [[nodiscard]] LineContext context_of(const StepReport& report) {
    if (report.adam_seconds > 0)  // else the update of this step is still running: the latest rate stands
      adam_rate_ = static_cast<double>(report.adam_parameters) / report.adam_seconds * 1e-9;
    const auto samples = static_cast<double>(sample_at(report.decision.step + 1));
    return {samples / static_cast<double>(data_.train_range.count), now(), speed_.tokens_per_second(),
            adam_rate_, memory_use()};
  }

  /// The run's next sample after so many steps.
  [[nodiscard]] uint64_t sample_at(int64_t step) const {
    return sample_ - static_cast<uint64_t>((trainer_->next_step() - step) * config_.train_batch_size);
  }

  [[nodiscard]] MemoryUse memory_use() const {
    return {device_->counters().total().peak, pinned_bytes_, machine_.host->counters().total().peak};
  }

  /// During training; the last step has its own, of the rounded masters.
  void evaluate_if_due() {
    const int64_t done = trainer_->next_step();
    if (done >= steps_ || !is_due(done, config_.train.eval_every) || data_.eval_range.count == 0) return;
    const int64_t version = trainer_->begin_evaluation();
    device_->range("evaluate");
    evaluate(version);
    speed_.leave_out(done);
  }

  /// With the weights of that version, which the device holds. False, without a result: a signal ended it.
  bool evaluate(int64_t version) {
    const DataLoader loader(data_.eval_set(), data_.eval_range, std::nullopt);
    double loss = 0;
    int64_t count = 0;
    std::vector<int32_t> tokens, targets;
    for (uint64_t k = 0; k < data_.eval_range.count; k += static_cast<uint64_t>(setup_.micro_batch)) {
      if (signals_->asked() != Status::ok) return false;
      const auto rows =
          std::min<int64_t>(setup_.micro_batch, static_cast<int64_t>(data_.eval_range.count - k));
      tokens.resize(static_cast<size_t>(rows * setup_.length));
      targets.resize(tokens.size());
      loader.fill(k, Tensor(tokens.data(), DType::i32, {rows, setup_.length}),
                  Tensor(targets.data(), DType::i32, {rows, setup_.length}));
      loss += trainer_->evaluate({tokens, targets});
      count += trained_targets(targets);
    }
    report_evaluation(loss / static_cast<double>(count), count, version);
    return true;
  }

  void report_evaluation(double loss, int64_t tokens, int64_t version) {
    const int64_t done = trainer_->next_step();
    result_.eval_loss = loss;
    if (!std::isnan(loss)) kept_metrics_.eval_losses[done] = loss;
    if (done != first_step_ || kept_metrics_.evaluated != version)  // else the line is there
      metrics_->write(evaluation_line(done, loss, tokens, version));
    printer_.note(fmt::format("step {}: held-out loss {:.4f} over {} tokens (weights of version {})", done,
                              loss, tokens, version));
  }

  void save() {
    device_->range("save");
    trainer_->quiesce();
    report();
    metrics_->sync();
    const Stopwatch watch;
    const RunState state = run_state();
    CheckpointModel model{table_, setup_.dtype, model_.config_json, model_.form(), {}, {}};
    model.model = config_.model.path;
    model.tokenizer = config_.model.tokenizer ? config_.model.tokenizer : config_.model.path;
    const fs::path path = folder_.checkpoint(state.step);
    const uint64_t bytes = save_checkpoint(path, *trainer_, model, state);
    saved_step_ = state.step;
    result_.checkpoint = path.string();
    std::erase(choice_.abandoned, state.step);
    prune();
    choice_.abandoned.clear();
    printer_.note(
        fmt::format("saved {} ({} in {})", path.string(), byte_text(bytes), duration(watch.seconds())));
    speed_.leave_out(state.step);
  }

  void prune() const {
    std::optional<int64_t> best;
    if (config_.checkpoint.keep_best) best = folder_.best_step(kept_metrics_.eval_losses);
    folder_.prune(config_.checkpoint.keep, choice_.abandoned, best);
  }

  [[nodiscard]] RunState run_state() const {
    RunState state;
    state.step = trainer_->next_step();
    state.sample = sample_;
    state.epoch = static_cast<double>(sample_) / static_cast<double>(data_.train_range.count);
    state.seed = config_.train.seed;
    state.train = trainer_->state();
    state.dtype = setup_.dtype;
    state.data = data_files_;
    state.config_hash = hash_of(resolved_);
    state.states = config_.checkpoint.states;
    state.format = setup_.states;
    return state;
  }

  /// The last save, and at the run's end the evaluation of the rounded masters.
  void finish() {
    const int64_t done = trainer_->next_step();
    if (done != saved_step_) save();
    if (done < steps_ || data_.eval_range.count == 0) return;
    trainer_->begin_evaluation();
    trainer_->finalize();
    if (evaluate(done))
      prune();  // the last checkpoint may be the best one
    else
      stop_by_signal();
  }

  const Config& config_;
  const RunOptions& options_;
  const ModelSource model_;
  const ParamTable table_;
  const DataSets data_;
  const int64_t steps_;
  const Machine machine_;
  const TrainSetup setup_;
  const size_t pinned_bytes_;
  const RunFolder folder_;
  const std::string resolved_;
  ProgressPrinter printer_;
  std::optional<RunLock> lock_;
  std::vector<DataFile> data_files_;
  ResumeChoice choice_;
  std::optional<SavedPlanes> saved_;  ///< of the checkpoint that was chosen
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<StepTracer> tracer_;  ///< while a trace is still to come
  const StopSignals* signals_ = nullptr;
  SpeedWindow speed_;
  double adam_rate_ = 0;  ///< 1e9 parameters per second of host Adam
  uint64_t sample_ = 0;
  int64_t first_step_ = 0;    ///< this process's
  int64_t saved_step_ = -1;   ///< of the newest checkpoint
  KeptMetrics kept_metrics_;  ///< of first_step_ and before; the losses also of this run's evaluations
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
