#pragma once
// Tiny training runs of the program, and what they leave.
#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tests/cli/program.h"
#include "tests/core/temporary_folder.h"

namespace tandem {

/// "key.of.config" -> JSON text of its value.
using Keys = std::map<std::string, std::string>;

/// A folder with token files (10 samples to train on, 4 of them a step: epochs end inside steps), configs and
/// run folders. A run of 12 steps takes some 60 ms.
class TinyRuns {
 public:
  TinyRuns();
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }
  /// Writes NAME.json, whose run folder is NAME; returns its path.
  std::string config(const std::string& name, const Keys& keys = {}) const;
  /// Writes the config and trains with it.
  [[nodiscard]] Ran train(const std::string& name, const Keys& keys = {},
                          const std::vector<std::string>& options = {}) const;

 private:
  TemporaryFolder folder_;
};

/// Runs the program and calls `act` with its process id as soon as it runs; act may wait, look and send
/// signals.
Ran run_watched(const std::vector<std::string>& arguments, const std::function<void(pid_t)>& act);

/// Polls until the condition holds or a process ends; true if it held.
bool wait_for(pid_t process, const std::function<bool()>& condition);

/// Lines of metrics.jsonl.
std::vector<json::Value> metrics_of(const std::string& run);
size_t count_lines(const std::string& path);

/// What a step computed, one text per step: the fields of metrics that do not depend on time or machine.
std::vector<std::string> computed(const std::string& run);
/// The same of evaluations.
std::vector<std::string> evaluated(const std::string& run);

/// RUN/checkpoints/step-....
std::string checkpoint_path(const std::string& run, int64_t step);
/// Every file of a checkpoint by name. Of state.json what does not name the config and thereby the run
/// folder.
std::map<std::string, std::string> content_of(const std::string& checkpoint);
/// The same files, bit by bit.
void expect_same_checkpoint(const std::string& a, const std::string& b);
/// Names below a folder that only an interrupted save leaves.
std::vector<std::string> litter_in(const std::string& run);
/// Whether the checkpoint is complete, by its own hashes.
bool is_complete(const std::string& checkpoint);
/// Names in RUN/checkpoints, sorted.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace tandem
