#pragma once
#include <cstdint>

namespace tandem {

/// What an Adam pass adds up on its way, to show how well delayed gradients still fit: over every 16th block
/// of 64 elements (of the parameter, or of the range where its place isn't given), in fp32 by sixteen lanes
/// within a task, in double above.
struct AdamSums {
  double grad_moment = 0;     ///< gradient (unscaled and clipped) times first moment before the update
  double grad_squares = 0;    ///< of that gradient
  double moment_squares = 0;  ///< of that moment
  double update_squares = 0;  ///< of the master after the update less before, as the formula gives it
  double master_squares = 0;  ///< of the master after the update
  AdamSums& operator+=(const AdamSums& other) {
    grad_moment += other.grad_moment;
    grad_squares += other.grad_squares;
    moment_squares += other.moment_squares;
    update_squares += other.update_squares;
    master_squares += other.master_squares;
    return *this;
  }
  friend bool operator==(const AdamSums&, const AdamSums&) = default;
};
constexpr int64_t kSampledBlocks = 16;

}  // namespace tandem
