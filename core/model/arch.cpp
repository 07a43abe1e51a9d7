#include "core/model/arch.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {

namespace {

/// Llama 3.1's scaling: short wavelengths kept, long ones divided by factor, a linear blend of both in
/// between.
double llama3(const Rope& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_position);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth =
      (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// The pair, as a real number, that turns so many times over the original length.
double pair_of_turns(const Rope& rope, int64_t head_dim, double turns) {
  const double original = static_cast<double>(rope.original_max_position);
  return static_cast<double>(head_dim) * std::log(original / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

/// YaRN: fast pairs kept, slow ones divided by factor, a linear blend over the pairs in between.
double yarn(const Rope& rope, int64_t head_dim, size_t pair, double frequency) {
  const double low = std::max(std::floor(pair_of_turns(rope, head_dim, rope.beta_fast)), 0.0);
  double high =
      std::min(std::ceil(pair_of_turns(rope, head_dim, rope.beta_slow)), static_cast<double>(head_dim - 1));
  if (high == low) high += 0.001;  // transformers' guard against a division by zero
  const double slow = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return slow * frequency / rope.factor + (1.0 - slow) * frequency;
}

}  // namespace

std::vector<double> rope_inverse_frequencies(const Rope& rope, int64_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double plain = std::pow(rope.theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    switch (rope.scaling) {
      case RopeScaling::none:
        frequencies[j] = plain;
        break;
      case RopeScaling::linear:
        frequencies[j] = plain / rope.factor;
        break;
      case RopeScaling::llama3:
        frequencies[j] = llama3(rope, plain);
        break;
      case RopeScaling::yarn:
        frequencies[j] = yarn(rope, head_dim, j, plain);
        break;
    }
  }
  return frequencies;
}

}  // namespace tandem
