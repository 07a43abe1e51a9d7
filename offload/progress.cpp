#include "offload/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace tandem {

namespace {
constexpr size_t kWindow = 20;  // steps
}

void SpeedWindow::add(int64_t step, int64_t tokens, double seconds) {
  if (left_out_.erase(step) > 0) return;
  steps_.push_back({tokens, seconds});
  if (steps_.size() > kWindow) steps_.pop_front();
}

double SpeedWindow::tokens_per_second() const {
  double seconds = 0;
  int64_t tokens = 0;
  for (const Step& step : steps_) {
    seconds += step.seconds;
    tokens += step.tokens;
  }
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

double SpeedWindow::seconds_per_step() const {
  double seconds = 0;
  for (const Step& step : steps_) seconds += step.seconds;
  return steps_.empty() ? 0.0 : seconds / static_cast<double>(steps_.size());
}

namespace {
/// JSON has no infinities: a norm or loss that is not finite becomes null.
json::Value finite(double x) { return std::isfinite(x) ? json::Value(x) : json::Value(); }

/// Of the gradient with the first moment that it met; null where either is zero, as before the second update.
json::Value grad_cosine(const std::optional<AdamSums>& sums) {
  if (!sums) return {};
  const double cosine = sums->grad_moment / std::sqrt(sums->grad_squares * sums->moment_squares);
  return finite(std::clamp(cosine, -1.0, 1.0));  // the sums are rounded
}

/// |update| / |weight|.
json::Value update_ratio(const std::optional<AdamSums>& sums) {
  return sums ? finite(std::sqrt(sums->update_squares / sums->master_squares)) : json::Value();
}
}  // namespace

json::Value metrics_line(const StepReport& report, const LineContext& context) {
  const Decision& d = report.decision;
  const StreamTimes& t = report.times;
  const MemoryUse& memory = context.memory;
  return json::Object{
      {"step", d.step + 1},
      {"updates", d.updates},
      {"epoch", context.epoch},
      {"time", context.time},
      {"loss", finite(d.loss)},
      {"tokens", d.tokens},
      {"tokens_per_s", context.tokens_per_second},
      {"grad_norm", finite(d.grad_norm)},
      {"clip_coef", d.clip_coef},
      {"lr", d.lr},
      {"loss_scale", d.loss_scale},
      {"skipped", d.skipped},
      {"grad_cosine", grad_cosine(report.sums_before)},
      {"update_ratio", update_ratio(report.sums_before)},
      {"step_ms", t.total_ms},
      {"busy_ms", t.busy_ms},
      {"exposed_ms",
       json::Object{{"d2h", t.d2h_ms}, {"adam", t.adam_ms}, {"h2d", t.h2d_ms}, {"other", t.other_ms}}},
      {"adam_gparam_s", context.adam_gparams_per_second},
      {"d2h_bytes", report.d2h_bytes},
      {"h2d_bytes", report.h2d_bytes},
      {"device_peak_bytes", memory.device_peak},
      {"pinned_bytes", memory.pinned},
      {"host_bytes", memory.host},
      {"version_lag", report.lag},
  };
}

json::Value evaluation_line(int64_t step, double loss, int64_t tokens, int64_t version) {
  return json::Object{{"step", step},
                      {"eval", true},
                      {"eval_loss", finite(loss)},
                      {"eval_tokens", tokens},
                      {"eval_version", version}};
}

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path) {
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.get() < 0) throw system_error(errno, "open the metrics", path_);
}

void MetricsFile::write(const json::Value& line) {
  const std::string text = json::dump(line) + "\n";
  const ssize_t written = ::write(file_.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    throw system_error(written < 0 ? errno : ENOSPC, "write the metrics", path_);
}

void MetricsFile::sync() {
  if (::fsync(file_.get()) != 0) throw system_error(errno, "sync the metrics", path_);
}

ProgressPrinter::ProgressPrinter(int64_t steps, int64_t every, bool quiet)
    : steps_(steps), every_(every), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressPrinter::~ProgressPrinter() { end_line(); }

void ProgressPrinter::end_line() {
  if (open_line_) std::fputc('\n', stderr);
  open_line_ = false;
}

void ProgressPrinter::step(const StepReport& report, const SpeedWindow& speed) {
  const Decision& d = report.decision;
  const int64_t step = d.step + 1;
  if (quiet_ || (!terminal_ && step % every_ != 0 && step != steps_ && step != 1)) return;
  const StreamTimes& t = report.times;
  const double left = speed.seconds_per_step() * static_cast<double>(steps_ - step);
  const std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f} (clip x{:.2f})  {:.0f} tokens/s  {:.0f} ms  exposed: "
      "optimizer {:.1f} ms, transfer {:.1f} ms  lag {}  ETA {}{}",
      step, steps_, d.loss, d.lr, d.grad_norm, d.clip_coef, speed.tokens_per_second(), t.total_ms, t.adam_ms,
      t.d2h_ms + t.h2d_ms, report.lag, speed.seconds_per_step() > 0 ? duration(left) : "?",
      d.skipped ? "  SKIPPED" : "");
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}", line);
    std::fflush(stderr);
    open_line_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

void ProgressPrinter::note(const std::string& line, bool warning) {
  if (quiet_ && !warning) return;
  end_line();
  fmt::print(stderr, "{}\n", line);
}

std::string duration(double seconds) {
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {:02d} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02d} min", whole / 3600, whole / 60 % 60);
}

std::string byte_text(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace tandem
