#pragma once
// A training run in its folder: everything around the steps. Starts or resumes, evaluates, saves, stops.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/run/config.h"

namespace tandem {

struct RunOptions {
  std::optional<std::string> resume;  ///< "auto" or the path of a checkpoint
  std::optional<int64_t> max_steps;   ///< stop after this step, counted from the run's very first
  bool dry_run = false;               ///< checks and banner; writes nothing
  bool quiet = false;
  std::vector<std::string> sets;  ///< what --set named: allowed to differ from the run that is resumed
};

/// What `train --json` prints.
struct RunResult {
  std::string run;
  int64_t step = 0, updates = 0, skipped = 0;
  std::optional<double> loss, eval_loss;
  std::string checkpoint;  ///< the newest one; empty without
  int64_t tokens = 0;      ///< of this process
  double seconds = 0, tokens_per_s = 0;
  std::string stopped_by;  ///< "steps", "max_steps", "signal"; empty for a dry run
  Status status = Status::ok;
};

/// Runs the whole thing. Throws Error and ErrorList for what goes wrong; nothing is written before all checks
/// have passed.
RunResult train(const Config& config, const RunOptions& options);

}  // namespace tandem
