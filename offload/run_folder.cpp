#include "offload/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>

#include "core/io/json.h"
#include "offload/checkpoint_state.h"

namespace tandem {

namespace {

constexpr std::string_view kPrefix = "step-";

/// The step of a checkpoint folder's name; nothing for other names.
std::optional<int64_t> step_of(const std::string& name) {
  if (name.size() <= kPrefix.size() || !name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  if (digits.size() > 18 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoll(digits);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  return names;
}

/// A kill in the middle leaves nothing that looks like a checkpoint.
void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  const fs::path doomed = partial_of(folder);
  fs::rename(folder, doomed, error);
  if (!error) fs::remove_all(doomed, error);
}

/// What cutting needs to know of a line of metrics.
struct MetricsLine {
  int64_t step = 0;
  std::optional<int64_t> eval_version;  ///< of an evaluation
  std::optional<double> eval_loss;      ///< of one whose loss is a number
};

/// Nothing for a line that is not whole.
std::optional<MetricsLine> parse_line(const std::string& line) {
  try {
    const json::Document document = json::parse(line, "metrics.jsonl");
    const json::Node root(document);
    MetricsLine parsed{root.at("step").as_i64(), std::nullopt, std::nullopt};
    if (!root.bool_or("eval", false)) return parsed;
    parsed.eval_version = root.at("eval_version").as_i64();
    const double loss = root.double_or("eval_loss", std::numeric_limits<double>::quiet_NaN());
    if (!std::isnan(loss)) parsed.eval_loss = loss;
    return parsed;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

RunLock::RunLock(const fs::path& path) {
  file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file_.get() < 0) throw system_error(errno, "open the run's lock", path);
  CHECK(::flock(file_.get(), LOCK_EX | LOCK_NB) == 0, Status::failed,
        "another process trains in this run folder", path,
        "wait for it, stop it, or choose another output_dir");
}

fs::path RunFolder::checkpoint(int64_t step) const {
  return checkpoints() / fmt::format("{}{:08d}", kPrefix, step);
}

bool RunFolder::used() const {
  std::error_code ignored;
  return fs::exists(metrics(), ignored) || fs::exists(resolved_config(), ignored) || !saved_steps().empty();
}

std::vector<int64_t> RunFolder::saved_steps() const {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(checkpoints()))
    if (const auto step = step_of(name)) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

bool RunFolder::is_complete(int64_t step) const {
  std::error_code ignored;
  return fs::exists(checkpoint(step) / kStateFile, ignored);
}

std::optional<int64_t> RunFolder::best_step(const std::map<int64_t, double>& eval_losses) const {
  std::optional<int64_t> best;
  for (const int64_t step : saved_steps()) {
    const auto loss = eval_losses.find(step);
    if (loss == eval_losses.end() || !is_complete(step)) continue;
    if (!best || loss->second < eval_losses.at(*best)) best = step;
  }
  return best;
}

void RunFolder::prune(int64_t keep, std::span<const int64_t> abandoned, std::optional<int64_t> best) const {
  std::error_code ignored;
  for (const std::string& name : names_in(checkpoints()))
    if (name.starts_with("." + std::string(kPrefix))) fs::remove_all(checkpoints() / name, ignored);
  for (const int64_t step : abandoned) remove_checkpoint(checkpoint(step));
  int64_t complete = 0;
  for (const int64_t step : saved_steps()) {
    if (complete < keep)
      complete += is_complete(step) ? 1 : 0;
    else if (step != best)
      remove_checkpoint(checkpoint(step));
  }
}

KeptMetrics RunFolder::cut_metrics(int64_t step) const {
  KeptMetrics metrics_kept;
  std::ifstream in(metrics(), std::ios::binary);
  if (!in) return metrics_kept;
  uintmax_t kept = 0;
  for (std::string line; std::getline(in, line);) {
    const auto parsed = parse_line(line);
    // getline meets the end only in a line without '\n': a torn one.
    if (in.eof() || !parsed || parsed->step > step) break;
    kept += line.size() + 1;
    if (parsed->step == step && parsed->eval_version) metrics_kept.evaluated = parsed->eval_version;
    if (parsed->eval_loss) metrics_kept.eval_losses[parsed->step] = *parsed->eval_loss;
  }
  in.close();
  std::error_code error;
  fs::resize_file(metrics(), kept, error);
  if (error) throw system_error(error.value(), "cut the metrics after the checkpoint's step", metrics());
  return metrics_kept;
}

fs::path partial_of(const fs::path& folder) {
  return folder.parent_path() / ("." + folder.filename().string() + ".partial");
}

uint64_t free_disk_bytes(const fs::path& path) {
  std::error_code error;
  fs::path there = fs::absolute(path, error);
  while (there.has_relative_path() && !fs::exists(there, error)) there = there.parent_path();
  const fs::space_info space = fs::space(there, error);
  return error ? UINT64_MAX : space.available;
}

}  // namespace tandem
