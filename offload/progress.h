#pragma once
// What a run says of itself step by step: the lines of metrics.jsonl, and the progress on the screen.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "core/device/memory.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "offload/trainer.h"

namespace tandem {

/// Speed over the last 20 steps, without those whose time is not that of a step alone: the process's first
/// one, and those that a save or an evaluation came before.
class SpeedWindow {
 public:
  /// The time of this step will not count.
  void leave_out(int64_t step) { left_out_.insert(step); }
  /// Every step, in order.
  void add(int64_t step, int64_t tokens, double seconds);
  /// 0 until there is a step to measure.
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] double seconds_per_step() const;

 private:
  struct Step {
    int64_t tokens;
    double seconds;
  };
  std::deque<Step> steps_;
  std::set<int64_t> left_out_;
};

/// Byte counters of a run at one moment.
struct MemoryUse {
  size_t device_peak = 0, pinned = 0, host = 0;
};

/// What a line of metrics.jsonl says beside the step's own report.
struct LineContext {
  double epoch = 0, time = 0;          ///< after the step; Unix seconds
  double tokens_per_second = 0;        ///< SpeedWindow's, the step included
  double adam_gparams_per_second = 0;  ///< of host Adam's latest work
  MemoryUse memory;
};
json::Value metrics_line(const StepReport& report, const LineContext& context);

/// The line of an evaluation after `step` steps; version: of the weights that it read.
json::Value evaluation_line(int64_t step, double loss, int64_t tokens, int64_t version);

/// Appends lines to metrics.jsonl, each whole and at once.
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path);
  void write(const json::Value& line);
  /// What has been written lasts through a power cut.
  void sync();

 private:
  std::string path_;
  Descriptor file_;
};

/// Progress on stderr: one line that rewrites itself on a terminal, else a line every `every` steps.
class ProgressPrinter {
 public:
  ProgressPrinter(int64_t steps, int64_t every, bool quiet);
  ~ProgressPrinter();
  void step(const StepReport& report, const SpeedWindow& speed);
  /// A line that stays: a save, an evaluation, a warning. Warnings are printed with --quiet too.
  void note(const std::string& line, bool warning = false);

 private:
  void end_line();
  const int64_t steps_, every_;
  const bool quiet_, terminal_;
  bool open_line_ = false;
};

/// "1 h 05 min", "2 min 10 s", "7.5 s".
std::string duration(double seconds);
/// "1.50 GiB".
std::string byte_text(uint64_t bytes);

}  // namespace tandem
