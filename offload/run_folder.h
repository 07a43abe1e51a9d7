#pragma once
// The folder of a run: its lock, its metrics, its checkpoints.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"

namespace tandem {

namespace fs = std::filesystem;

/// One run at a time: the folder's run.lock is held as long as this object lives, and freed by the system if
/// the process dies.
class RunLock {
 public:
  /// path: the lock file, made if it is not there. Error(failed) when another process holds it.
  explicit RunLock(const fs::path& path);

 private:
  Descriptor file_;
};

/// What metrics.jsonl says after it has been cut.
struct KeptMetrics {
  std::optional<int64_t> evaluated;       ///< version of the last evaluation of the step that was cut after
  std::map<int64_t, double> eval_losses;  ///< by step; those that are numbers
};

class RunFolder {
 public:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] fs::path lock() const { return path_ / "run.lock"; }
  [[nodiscard]] fs::path metrics() const { return path_ / "metrics.jsonl"; }
  [[nodiscard]] fs::path trace() const { return path_ / "trace.json"; }
  [[nodiscard]] fs::path resolved_config() const { return path_ / "config.resolved.json"; }
  [[nodiscard]] fs::path checkpoints() const { return path_ / "checkpoints"; }
  /// checkpoints/step-00000100: the state after step 100.
  [[nodiscard]] fs::path checkpoint(int64_t step) const;
  /// True if a run has been started here.
  [[nodiscard]] bool used() const;
  /// Steps that have a checkpoint folder, complete or not, newest first.
  [[nodiscard]] std::vector<int64_t> saved_steps() const;
  /// True if the step's save came to its end; its files are not looked at.
  [[nodiscard]] bool is_complete(int64_t step) const;
  /// After a save: removes what interrupted saves left, the checkpoints of `abandoned` steps, and everything
  /// older than the newest `keep` complete ones, but for the one of step `best`. What can't be removed stays,
  /// without an error.
  void prune(int64_t keep, std::span<const int64_t> abandoned, std::optional<int64_t> best = {}) const;
  /// Of the complete checkpoints, the newest one with the lowest loss; nothing where none has a loss.
  [[nodiscard]] std::optional<int64_t> best_step(const std::map<int64_t, double>& eval_losses) const;
  /// Cuts metrics.jsonl after the last line of `step`; a torn last line goes too.
  KeptMetrics cut_metrics(int64_t step) const;

 private:
  fs::path path_;
};

/// Where a save builds the checkpoint that is to appear as `folder`: hidden, beside it.
fs::path partial_of(const fs::path& folder);

/// Free bytes on the disk that a path lies on or would lie on; UINT64_MAX when it can't be asked.
uint64_t free_disk_bytes(const fs::path& path);

}  // namespace tandem
