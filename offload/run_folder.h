#pragma once
// The folder of a run: its lock, its metrics, its checkpoints.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/io/file.h"

namespace tandem {

namespace fs = std::filesystem;

/// One run at a time: the folder's run.lock is held as long as this object lives, and freed by the system if
/// the process dies.
class RunLock {
 public:
  /// Error(failed) when another process holds it.
  explicit RunLock(const fs::path& folder);

 private:
  Descriptor file_;
};

class RunFolder {
 public:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] fs::path metrics() const { return path_ / "metrics.jsonl"; }
  [[nodiscard]] fs::path resolved_config() const { return path_ / "config.resolved.json"; }
  [[nodiscard]] fs::path checkpoints() const { return path_ / "checkpoints"; }
  /// checkpoints/step-00000100: the state after step 100.
  [[nodiscard]] fs::path checkpoint(int64_t step) const;
  /// True if a run has been started here.
  [[nodiscard]] bool used() const;
  /// Steps that have a checkpoint folder, complete or not, newest first.
  [[nodiscard]] std::vector<int64_t> saved_steps() const;
  /// Removes what an interrupted save left, and all complete checkpoints but the newest `keep`.
  void prune(int64_t keep) const;
  /// Cuts metrics.jsonl after the last line of `step`; a torn last line goes too.
  void cut_metrics(int64_t step) const;

 private:
  fs::path path_;
};

}  // namespace tandem
