#pragma once
// Weights that stream: they live on the host, in the optimizer's slots, and pass through a window of device
// memory, each block fetched a little before the pass comes to it.
#include <cstddef>
#include <vector>

#include "core/model/exchange.h"
#include "offload/memory_plan.h"
#include "offload/param_store.h"
#include "offload/setup.h"
#include "offload/slots.h"
#include "offload/update_ring.h"

namespace tandem {

/// Used by the main thread only. Blocks that do not stream are leased as ResidentWeights leases them.
class WeightWindow : public ParamSource {
 public:
  /// memory: plan_weights()'s elements of the window, flat on the device. frozen[block]: what of a streamed
  /// block is not trained, on the host, pinned; empty where all is. fetch: the stream of the copies, and of
  /// nothing else.
  WeightWindow(const TrainSetup& setup, const ParamTable& table, UpdateRing& ring, Slots& slots,
               Stream& fetch, Tensor memory, std::vector<Tensor> frozen);

  /// Blocks the calling thread until the update that makes the version has been enqueued.
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
  UpdateRing& ring_;
  Slots& slots_;
  Stream& fetch_;
  ResidentWeights resident_;
  std::vector<Slot> layers_, vocab_;
  const std::vector<Tensor> frozen_;
  size_t fetched_bytes_ = 0;
};

}  // namespace tandem
