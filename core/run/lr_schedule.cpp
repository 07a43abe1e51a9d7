#include "core/run/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {

namespace {

double warmup_factor(const ScheduleConfig& schedule, int64_t n) {
  const auto done = static_cast<double>(n);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (warmup <= 1) return 1;
  if (schedule.warmup_type == WarmupType::linear) return std::min(1.0, (done + 1) / warmup);
  return std::min(1.0, std::log(done + 2) / std::log(warmup));
}

/// Share of the way from W to N that lies behind n, n >= W. Below N, N - W is at least 1.
double progress(const ScheduleConfig& schedule, int64_t n) {
  if (n >= schedule.total_steps) return 1;
  return static_cast<double>(n - schedule.warmup_steps) /
         static_cast<double>(schedule.total_steps - schedule.warmup_steps);
}

double cosine_factor(const ScheduleConfig& schedule, int64_t n) {
  if (n < schedule.warmup_steps)
    return schedule.warmup_min_ratio + (1 - schedule.warmup_min_ratio) * warmup_factor(schedule, n);
  const double swing = (1 + std::cos(std::numbers::pi * progress(schedule, n))) / 2;
  return schedule.cos_min_ratio + (1 - schedule.cos_min_ratio) * swing;
}

}  // namespace

double lr_at(const ScheduleConfig& schedule, int64_t n) {
  const auto between = [&](double factor) {
    return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * factor;
  };
  switch (schedule.type) {
    case ScheduleType::constant:
      break;
    case ScheduleType::warmup:
      return between(n < schedule.warmup_steps ? warmup_factor(schedule, n) : 1);
    case ScheduleType::warmup_decay:
      return between(n < schedule.warmup_steps ? warmup_factor(schedule, n) : 1 - progress(schedule, n));
    case ScheduleType::warmup_cosine:
      return schedule.lr * cosine_factor(schedule, n);
  }
  return schedule.lr;
}

}  // namespace tandem
