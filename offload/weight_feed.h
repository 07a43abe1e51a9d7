#pragma once
// Where weights that stream come from: while training out of the optimizer's slots, version by version; else
// out of one plane of host memory that nobody changes.
#include <utility>
#include <vector>

#include "core/model/exchange.h"
#include "offload/param_store.h"
#include "offload/setup.h"
#include "offload/slots.h"
#include "offload/update_ring.h"

namespace tandem {

/// What a WeightWindow knows of its blocks' origin. Used by the main thread only.
class WeightFeed {
 public:
  virtual ~WeightFeed() = default;
  /// Who leases a block that stays on the device; null for one that streams. All below is of the latter.
  [[nodiscard]] virtual ParamSource* resident(BlockId block) = 0;
  /// The version that passes read now.
  [[nodiscard]] virtual int64_t version() const = 0;
  /// Whether every version of the block is the same.
  [[nodiscard]] virtual bool is_fixed(BlockId block) const = 0;
  /// Whether await() would return at once.
  [[nodiscard]] virtual bool has_arrived(BlockId block) const = 0;
  /// Blocks the calling thread until what makes the block's version has been enqueued. The version must be
  /// version().
  virtual void await(BlockId block, int64_t version) = 0;
  /// Enqueues the copies of version() to `to`, [numel] flat on the device, behind what makes it.
  virtual void fetch(BlockId block, Stream& stream, Tensor to) = 0;
  /// A lease of the pass ended; fetched: the copies into what it read.
  virtual void released(BlockId block, Pass pass, const Fence& fetched) = 0;
};

/// Weights that training overwrites; the ring says when which version stands in its slot.
class RingFeed : public WeightFeed {
 public:
  /// frozen[block]: what of a streamed block is not trained, on the host, pinned; empty where all is.
  RingFeed(const TrainSetup& setup, const ParamTable& table, UpdateRing& ring, Slots& slots,
           std::vector<Tensor> frozen);
  [[nodiscard]] ParamSource* resident(BlockId block) override;
  [[nodiscard]] int64_t version() const override { return ring_.version(); }
  [[nodiscard]] bool is_fixed(BlockId block) const override { return table_.block(block).trained == 0; }
  [[nodiscard]] bool has_arrived(BlockId block) const override { return ring_.has_arrived(block); }
  void await(BlockId block, int64_t version) override { (void)ring_.arrival(block, version); }
  void fetch(BlockId block, Stream& stream, Tensor to) override;
  void released(BlockId block, Pass pass, const Fence& fetched) override;

 private:
  const TrainSetup& setup_;
  const ParamTable& table_;
  UpdateRing& ring_;
  Slots& slots_;
  ResidentWeights resident_;
  const std::vector<Tensor> frozen_;
};

/// Weights that nobody changes, all of which stream.
class FixedFeed : public WeightFeed {
 public:
  /// weights[block]: [numel] flat, on the host, pinned, written before anything is fetched.
  explicit FixedFeed(std::vector<Tensor> weights) : weights_(std::move(weights)) {}
  [[nodiscard]] ParamSource* resident(BlockId) override { return nullptr; }
  [[nodiscard]] int64_t version() const override { return 0; }
  [[nodiscard]] bool is_fixed(BlockId) const override { return true; }
  [[nodiscard]] bool has_arrived(BlockId) const override { return true; }
  void await(BlockId, int64_t) override {}
  void fetch(BlockId block, Stream& stream, Tensor to) override {
    stream.copy(to, weights_.at(static_cast<size_t>(block)));
  }
  void released(BlockId, Pass, const Fence&) override {}

 private:
  const std::vector<Tensor> weights_;
};

}  // namespace tandem
