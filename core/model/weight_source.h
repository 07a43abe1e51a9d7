#pragma once
#include <cstdint>
#include <span>

#include "core/model/params.h"

namespace tandem {

/// Where a model's first weights come from: a folder, or a seed.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Fills out with the parameter's elements from `first` on, in fp32.
  virtual void read(const ParamSpec& spec, int64_t first, std::span<float> out) = 0;
};

/// As transformers begins a model: normal values with standard deviation `range` (Box-Muller in double over
/// Philox by seed, parameter and element), in GPT-2 less where a layer adds to the residual stream; the
/// padding token's row zero, norms ones, biases zeros.
class SeededWeights : public WeightSource {
 public:
  SeededWeights(const ParamTable& table, uint64_t seed, double range)
      : table_(table), seed_(seed), range_(range) {}
  void read(const ParamSpec& spec, int64_t first, std::span<float> out) override;

 private:
  [[nodiscard]] double deviation(Init init) const;
  const ParamTable& table_;
  uint64_t seed_;
  double range_;
};

}  // namespace tandem
