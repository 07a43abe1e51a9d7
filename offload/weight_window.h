#pragma once
// Weights that stream: they live on the host and pass through a window of device memory, each block fetched a
// little before the pass comes to it.
#include <cstddef>
#include <memory>
#include <vector>

#include "core/model/exchange.h"
#include "offload/memory_plan.h"
#include "offload/setup.h"
#include "offload/weight_feed.h"

namespace tandem {

/// Used by the main thread only.
class WeightWindow : public ParamSource {
 public:
  /// memory: plan_weights()'s elements of the window, flat on the device. fetch: the stream of the copies,
  /// and of nothing else.
  WeightWindow(const TrainSetup& setup, const ParamTable& table, std::unique_ptr<WeightFeed> feed,
               Stream& fetch, Tensor memory);

  /// Blocks the calling thread until what makes the version has been enqueued.
  [[nodiscard]] Lease acquire(BlockId block, int64_t version, Pass pass, Stream& stream) override;
  /// Fetches the block, and those that the pass comes to next, as far as their versions have arrived and the
  /// window reaches.
  void prefetch(BlockId block, Pass pass) override;
  /// What is fetched no longer counts: the weights on the host have been written anew.
  void forget();
  /// All that has been enqueued so far.
  [[nodiscard]] size_t fetched_bytes() const { return fetched_bytes_; }

 private:
  static constexpr BlockId kNone = -1;
  struct Slot {
    Tensor memory;  // [elements of the largest block of the class]
    BlockId block = kNone;
    int64_t version = -1;
    int leases = 0;
    Fence fetched;  ///< the copies into it
    Fence read;     ///< the last lease's reads
  };
  [[nodiscard]] std::vector<Slot>& window_of(BlockId block);
  /// The slot that holds what the current step reads of the block; null if none does.
  [[nodiscard]] Slot* find(BlockId block);
  /// The slot that the pass needs least on its way to the block; null if all are leased.
  [[nodiscard]] Slot* least_needed(BlockId block, Pass pass);
  [[nodiscard]] bool holds_current(const Slot& slot) const;
  void fetch(Slot& slot, BlockId block);
  void released(BlockId block, Pass pass, Stream& stream) override;

  const TrainSetup& setup_;
  const ParamTable& table_;
  const std::unique_ptr<WeightFeed> feed_;
  Stream& fetch_;
  std::vector<Slot> layers_, vocab_;
  size_t fetched_bytes_ = 0;
};

}  // namespace tandem
