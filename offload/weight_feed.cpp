#include "offload/weight_feed.h"

namespace tandem {

RingFeed::RingFeed(const TrainSetup& setup, const ParamTable& table, UpdateRing& ring, Slots& slots,
                   std::vector<Tensor> frozen)
    : setup_(setup), table_(table), ring_(ring), slots_(slots), resident_(ring), frozen_(std::move(frozen)) {}

ParamSource* RingFeed::resident(BlockId block) { return setup_.streams(block) ? nullptr : &resident_; }

void RingFeed::fetch(BlockId block, Stream& stream, Tensor to) {
  const int64_t trained = table_.block(block).trained, version = ring_.version();
  const Tensor frozen = frozen_[static_cast<size_t>(block)];
  if (trained > 0) {
    stream.wait(ring_.arrival(block, version));
    stream.copy(to.flat(0, trained), slots_.weights(block, version));
  }
  if (!frozen.empty()) stream.copy(to.flat(trained, frozen.numel()), frozen);
}

void RingFeed::released(BlockId block, Pass pass, const Fence& fetched) {
  if (pass != Pass::evaluate) ring_.released(block, fetched);
}

}  // namespace tandem
