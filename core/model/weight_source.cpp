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

void SeededWeights::read(const ParamSpec& spec, std::span<float> out) {
  ASSERT(static_cast<int64_t>(out.size()) == spec.numel, "{} values for {} of {}", out.size(), spec.name,
         spec.numel);
  if (spec.init == Init::ones || spec.init == Init::zeros) {
    std::fill(out.begin(), out.end(), spec.init == Init::ones ? 1.0f : 0.0f);
    return;
  }
  const double range = deviation(spec.init);
  const auto index = static_cast<uint64_t>(&spec - table_.params().data());
  for (size_t i = 0; i < out.size(); i += 2) {
    const Philox random = philox(seed_, i / 2, index);
    const double radius = range * std::sqrt(-2.0 * std::log(uniform(random.x[0], random.x[1])));
    const double angle = 2.0 * std::numbers::pi * uniform(random.x[2], random.x[3]);
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  if (spec.zero_row >= 0) {
    const auto width = static_cast<size_t>(spec.shape.at(1));
    std::ranges::fill(out.subspan(static_cast<size_t>(spec.zero_row) * width, width), 0.0f);
  }
}

double SeededWeights::deviation(Init init) const {
  const int layers = table_.block_count() - 2;  // without the embedding and the head
  return init == Init::residual ? range_ / std::sqrt(2.0 * layers) : range_;
}

}  // namespace tandem
