#include "core/run/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace tandem {

namespace {
constexpr int kMaxPower = 127;  // the largest power of two in fp32
}

LossScaler::LossScaler(const LossScaleConfig& config) : config_(config) {
  const auto power = static_cast<int>(config.initial_scale_power);
  state_ = {config.fixed > 0 ? config.fixed : std::ldexp(1.0, power), 0, config.hysteresis};
}

void LossScaler::update(bool overflow, bool was_current_scale) {
  if (config_.fixed > 0) return;
  if (overflow)
    on_overflow(was_current_scale);
  else
    on_good_step();
}

void LossScaler::on_overflow(bool was_current_scale) {
  state_.good_steps = 0;
  if (!was_current_scale) return;
  if (state_.hysteresis_left > 1)
    --state_.hysteresis_left;
  else
    state_.scale = std::max(state_.scale / 2, static_cast<double>(config_.min_scale));
}

void LossScaler::on_good_step() {
  if (config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  if (++state_.good_steps < config_.window) return;
  state_.good_steps = 0;
  state_.hysteresis_left = config_.hysteresis;
  state_.scale = std::min(state_.scale * 2, std::ldexp(1.0, kMaxPower));
}

}  // namespace tandem
