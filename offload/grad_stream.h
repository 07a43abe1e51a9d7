#pragma once
// From the accumulators of backward to the optimizer's slots: buckets, the one rounding, the norm's parts,
// the way to the host.
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "core/model/exchange.h"
#include "offload/memory_plan.h"
#include "offload/setup.h"
#include "offload/slots.h"

namespace tandem {

/// Told of every gradient as it is sent on its way: it has landed in its slot once the fence has passed.
using OnLanding = std::function<void(BlockId block, const Fence& landed)>;

/// Used by the main thread only.
class GradStream : public GradSink {
 public:
  /// round: the stream on which what is sent is rounded and summed up, so that compute goes on; d2h: the
  /// copies'.
  GradStream(const TrainSetup& setup, const ParamTable& table, Device& device, Slots& slots, Stream& round,
             Stream& d2h, OnLanding on_landing);

  /// Starts a step. scalars: [2 * slices] f64 on the device, gets (sum of squares, non-finite count) of each
  /// slice, where slice_places() says.
  void begin(int64_t step, Tensor scalars);
  [[nodiscard]] Tensor open(BlockId block, Stream& stream) override;
  void close(BlockId block, Stream& stream) override;
  /// Bytes sent to the host by one step.
  [[nodiscard]] size_t bytes_per_step() const;

 private:
  struct Bucket {
    Tensor sum;  // [capacity] fp32
    Fence free;  ///< the last read of it on another stream
  };
  struct Staging {
    Tensor memory;  // [slice] training dtype
    Fence sent;
  };
  struct Open {
    std::vector<Bucket> uses;    ///< in order of arrival
    int passes = 0;              ///< closes of the last use so far
    int opened = 0, closed = 0;  ///< in this group of micro-batches
  };
  [[nodiscard]] std::deque<Bucket>& pool(BlockId block);
  void finish(BlockId block, Open& open, Stream& stream);
  /// body(part of the tensor, place of its numbers) for each slice.
  void for_slices(BlockId block, Tensor whole, const std::function<void(Tensor, Tensor)>& body) const;
  /// The fence of its landing.
  [[nodiscard]] Fence send(BlockId block, Bucket& bucket, const Slots::Landing& slot, Stream& stream);

  const TrainSetup& setup_;
  const ParamTable& table_;
  Ops& ops_;
  Slots& slots_;
  Stream& round_;
  Stream& d2h_;
  const OnLanding on_landing_;
  Buffer memory_;
  std::deque<Bucket> layer_pool_, vocab_pool_;
  std::deque<Staging> staging_;  ///< the one that was used longest ago first
  const std::vector<int64_t> slice_places_;
  std::vector<Open> open_;
  int64_t step_ = 0;
  Tensor scalars_;
};

}  // namespace tandem
