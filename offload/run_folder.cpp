#include "offload/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "core/io/json.h"

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

/// The step of one line of metrics; nothing for a line that is not whole.
std::optional<int64_t> line_step(const std::string& line) {
  try {
    const json::Document document = json::parse(line, "metrics.jsonl");
    const json::Value* step = document.root.find("step");
    return step == nullptr ? std::nullopt : step->i64();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

RunLock::RunLock(const fs::path& folder) {
  const std::string path = folder / "run.lock";
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
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints(), error))
    if (const auto step = step_of(entry.path().filename())) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void RunFolder::prune(int64_t keep) const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints(), ignored))
    if (entry.path().filename().string().starts_with(".")) fs::remove_all(entry.path(), ignored);
  int64_t complete = 0;
  for (const int64_t step : saved_steps())
    if (fs::exists(checkpoint(step) / "state.json", ignored) && ++complete > keep)
      fs::remove_all(checkpoint(step), ignored);
}

void RunFolder::cut_metrics(int64_t step) const {
  std::ifstream in(metrics(), std::ios::binary);
  if (!in) return;
  uintmax_t kept = 0;
  for (std::string line; std::getline(in, line);) {
    const auto at = line_step(line);
    if (in.eof() || !at || *at > step) break;  // getline meets the end only in a line without '\n': torn
    kept += line.size() + 1;
  }
  in.close();
  std::error_code error;
  fs::resize_file(metrics(), kept, error);
  if (error) throw system_error(error.value(), "cut the metrics after the checkpoint's step", metrics());
}

}  // namespace tandem
