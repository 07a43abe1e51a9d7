#include "offload/slots.h"

#include <algorithm>
#include <utility>

namespace tandem {

Slots::Slots(std::vector<std::vector<Tensor>> memory, std::vector<int> readers)
    : readers_(std::move(readers)) {
  for (const std::vector<Tensor>& tensors : memory) {
    std::vector<Slot>& slots = slots_.emplace_back();
    for (const Tensor& tensor : tensors) slots.push_back({tensor, 0, -1, {}});
  }
}

Slots::Landing Slots::land(BlockId block, int64_t step) {
  const std::lock_guard lock(mutex_);
  auto& slots = slots_.at(static_cast<size_t>(block));
  // The one that is free longest: what was in the other one may still be on its way to the device.
  const auto age = [](const Slot& slot) { return std::pair(slot.readers > 0, slot.step); };
  const auto free = std::min_element(slots.begin(), slots.end(),
                                     [&](const Slot& a, const Slot& b) { return age(a) < age(b); });
  ASSERT(free->readers == 0, "block {} has no free slot for the gradient of step {}", block, step);
  free->readers = readers_.at(static_cast<size_t>(block));
  free->step = step;
  return {free->memory, std::exchange(free->last_reads, {})};
}

const Slots::Slot& Slots::of_step(BlockId block, int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto& slots = slots_.at(static_cast<size_t>(block));
  const auto found = std::find_if(slots.begin(), slots.end(),
                                  [&](const Slot& s) { return s.readers > 0 && s.step == step; });
  ASSERT(found != slots.end(), "block {} holds nothing of step {}", block, step);
  return *found;
}

Tensor Slots::gradient(BlockId block, int64_t step) const { return of_step(block, step).memory; }

Tensor Slots::weights(BlockId block, int64_t version) const { return of_step(block, version - 1).memory; }

void Slots::release(BlockId block, int64_t version, Fence last_read) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_.at(static_cast<size_t>(block))) {
    if (slot.readers == 0 || slot.step != version - 1) continue;
    --slot.readers;
    slot.last_reads.push_back(std::move(last_read));
    return;
  }
  ASSERT(false, "version {} of block {} is in no slot", version, block);
}

}  // namespace tandem
