#pragma once
#include <cstdint>

namespace tandem {

enum class ScheduleType : uint8_t { constant, warmup, warmup_decay, warmup_cosine };
enum class WarmupType : uint8_t { log, linear };

/// DeepSpeed's learning-rate schedules with every value known (no defaults left to derive).
struct ScheduleConfig {
  ScheduleType type = ScheduleType::constant;
  double lr = 0;             ///< optimizer.params.lr: the constant, and what the cosine's ratios multiply
  int64_t warmup_steps = 0;  ///< W
  WarmupType warmup_type = WarmupType::log;
  double min_lr = 0, max_lr = 0;  ///< of warm-up and decay
  int64_t total_steps = 1;        ///< N; of decay and cosine
  double cos_min_ratio = 1e-4, warmup_min_ratio = 0;
};

/// The learning rate of the update that follows n applied ones (n >= 0). Skipped steps do not count.
///
/// Warm-up factor for n < W: linear (n+1)/W; log min(1, ln(n+2)/ln(max(2, W))); 1 where W <= 1. Afterwards:
///   warmup         1
///   warmup_decay   (N - n)/(N - W), and 0 from N on
///   warmup_cosine  r + (1 - r)(1 + cos(pi (n - W)/(N - W)))/2 with r = cos_min_ratio, and r from N on
/// lr = min_lr + (max_lr - min_lr) factor. The cosine's is lr * factor, its warm-up going from
/// warmup_min_ratio to 1. The first lr is above 0 whatever W is, if max_lr (lr) is and N >= 1. A W at or
/// above N only warms up.
double lr_at(const ScheduleConfig& schedule, int64_t n);

}  // namespace tandem
