#pragma once
// Weights that are resident on the device, as a ParamSource.
#include <vector>

#include "core/model/exchange.h"
#include "offload/update_ring.h"

namespace tandem {

/// Weights that training overwrites version by version; the ring says when.
class ResidentWeights : public ParamSource {
 public:
  explicit ResidentWeights(UpdateRing& ring) : ring_(ring) {}
  [[nodiscard]] Lease acquire(BlockId block, int64_t version, Pass pass, Stream& stream) override {
    stream.wait(ring_.arrival(block, version));
    return {*this, block, pass, stream, ring_.device_weights(block)};
  }

 private:
  void released(BlockId block, Pass pass, Stream& stream) override {
    if (pass != Pass::evaluate) ring_.released(block, stream.record());
  }
  UpdateRing& ring_;
};

/// Weights that nobody changes (eval, export): every version is theirs.
class FixedWeights : public ParamSource {
 public:
  /// weights[block]: [numel] flat, ready once `arrived` has passed.
  FixedWeights(std::vector<Tensor> weights, Fence arrived)
      : weights_(std::move(weights)), arrived_(std::move(arrived)) {}
  [[nodiscard]] Lease acquire(BlockId block, int64_t /*version*/, Pass pass, Stream& stream) override {
    stream.wait(arrived_);
    return {*this, block, pass, stream, weights_.at(static_cast<size_t>(block))};
  }

 private:
  void released(BlockId, Pass, Stream&) override {}
  std::vector<Tensor> weights_;
  Fence arrived_;
};

}  // namespace tandem
