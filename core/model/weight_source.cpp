#include "core/model/weight_source.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/math/philox.h"

namespace tandem {

namespace {

/// In (0, 1), from 53 of 64 random bits.
double uniform(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

}  // namespace

void SeededWeights::read(const ParamSpec& spec, int64_t first, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  ASSERT(first >= 0 && first + count <= spec.numel, "elements {}+{} of {}, which has {}", first, count,
         spec.name, spec.numel);
  if (spec.init == Init::ones || spec.init == Init::zeros) {
    std::fill(out.begin(), out.end(), spec.init == Init::ones ? 1.0f : 0.0f);
    return;
  }
  const double range = deviation(spec.init);
  const auto index = table_.index(spec);
  for (int64_t pair = first / 2; 2 * pair < first + count; ++pair) {
    const Philox random = philox(seed_, static_cast<uint64_t>(pair), index);
    const double radius = range * std::sqrt(-2.0 * std::log(uniform(random.x[0], random.x[1])));
    const double angle = 2.0 * std::numbers::pi * uniform(random.x[2], random.x[3]);
    const double values[] = {radius * std::cos(angle), radius * std::sin(angle)};
    for (int64_t i = std::max(first, 2 * pair); i < std::min(first + count, 2 * pair + 2); ++i)
      out[static_cast<size_t>(i - first)] = static_cast<float>(values[i % 2]);
  }
  if (spec.zero_row < 0) return;
  const int64_t width = spec.shape.at(1), zero = spec.zero_row * width;
  const int64_t begin = std::clamp(zero - first, int64_t{0}, count),
                end = std::clamp(zero + width - first, int64_t{0}, count);
  std::fill(out.begin() + begin, out.begin() + end, 0.0f);
}

double SeededWeights::deviation(Init init) const {
  const int layers = table_.block_count() - 2;  // without the embedding and the head
  return init == Init::residual ? range_ / std::sqrt(2.0 * layers) : range_;
}

}  // namespace tandem
