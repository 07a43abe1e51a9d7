#pragma once
#include <cstdint>

namespace tandem {

/// The keys of the config's fp16 section.
struct LossScaleConfig {
  double fixed = 0;                     ///< loss_scale; above 0 the scale never changes
  int64_t initial_scale_power = 16;     ///< the first scale is 2 to this power
  int64_t window = 1000;                ///< loss_scale_window: good steps in a row until the scale doubles
  int64_t hysteresis = 2;               ///< overflows until the scale halves for the first time
  int64_t min_scale = 1;                ///< min_loss_scale: the scale never falls below
  bool consecutive_hysteresis = false;  ///< every good step restores the hysteresis, not only a doubling
};

/// What a checkpoint keeps of the scaler.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;       ///< in a row, since the last overflow or doubling
  int64_t hysteresis_left = 1;  ///< the overflow that finds 1 halves the scale
  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

/// DeepSpeed's dynamic loss scale, told of every step in step order. With the defaults: the first overflow
/// only uses up hysteresis, every further one halves the scale, down to min_scale and no further; 1000 good
/// steps in a row double it (to at most 2^127) and restore the hysteresis. It never gives up: that is the
/// caller's decision.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleConfig& config);
  LossScaler(const LossScaleConfig& config, const LossScaleState& state) : config_(config), state_(state) {}
  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] const LossScaleState& state() const { return state_; }
  /// overflow: the step's gradient was not finite. was_current_scale: that gradient had been scaled with the
  /// present scale. Late news of an older scale restarts the count of good steps, but lowers nothing a second
  /// time.
  void update(bool overflow, bool was_current_scale);

 private:
  void on_overflow(bool was_current_scale);
  void on_good_step();
  LossScaleConfig config_;
  LossScaleState state_;
};

}  // namespace tandem
