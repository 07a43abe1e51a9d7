#include "offload/weight_window.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tandem {

WeightWindow::WeightWindow(const TrainSetup& setup, const ParamTable& table, std::unique_ptr<WeightFeed> feed,
                           Stream& fetch, Tensor memory)
    : setup_(setup), table_(table), feed_(std::move(feed)), fetch_(fetch) {
  const WeightPlan plan = plan_weights(setup, table);
  int64_t begin = 0;
  const auto cut = [&](std::vector<Slot>& window, int count, int64_t elements) {
    for (int i = 0; i < count; ++i, begin += elements)
      window.emplace_back().memory = memory.flat(begin, elements);
  };
  cut(layers_, plan.layer_slots, plan.layer_elements);
  cut(vocab_, plan.vocab_slots, plan.vocab_elements);
}

Lease WeightWindow::acquire(BlockId block, int64_t version, Pass pass, Stream& stream) {
  if (ParamSource* resident = feed_->resident(block)) return resident->acquire(block, version, pass, stream);
  feed_->await(block, version);
  Slot* slot = find(block);
  if (slot == nullptr) {
    slot = least_needed(block, pass);
    ASSERT(slot != nullptr, "block {} finds no room in the window", block);
    fetch(*slot, block);
  }
  ++slot->leases;
  stream.wait(slot->fetched);
  return {*this, block, pass, stream, slot->memory.flat(0, table_.block(block).numel)};
}

void WeightWindow::prefetch(BlockId block, Pass pass) {
  const int step = pass == Pass::backward ? -1 : 1;
  for (int ahead = 1; ahead < setup_.window; ++ahead, block += step) {
    if (block < 1 || block >= table_.block_count() || feed_->resident(block) != nullptr) return;
    if (find(block) != nullptr) continue;
    Slot* slot = feed_->has_arrived(block) ? least_needed(block, pass) : nullptr;
    if (slot == nullptr) return;
    fetch(*slot, block);
  }
}

void WeightWindow::forget() {
  for (std::vector<Slot>* window : {&layers_, &vocab_})
    for (Slot& slot : *window) slot.block = kNone;
}

std::vector<WeightWindow::Slot>& WeightWindow::window_of(BlockId block) {
  return is_vocab_block(setup_.arch, table_, block) ? vocab_ : layers_;
}

bool WeightWindow::holds_current(const Slot& slot) const {
  return slot.block != kNone && (feed_->is_fixed(slot.block) || slot.version == feed_->version());
}

WeightWindow::Slot* WeightWindow::find(BlockId block) {
  for (Slot& slot : window_of(block))
    if (slot.block == block && holds_current(slot)) return &slot;
  return nullptr;
}

/// What the pass has behind it goes first, the farthest of it before the rest; then the farthest ahead.
WeightWindow::Slot* WeightWindow::least_needed(BlockId block, Pass pass) {
  const auto need = [&](const Slot& slot) {
    const BlockId ahead = pass == Pass::backward ? block - slot.block : slot.block - block;
    return std::tuple(slot.leases > 0, holds_current(slot), ahead > 0, -std::abs(ahead));
  };
  std::vector<Slot>& window = window_of(block);
  const auto least = std::min_element(window.begin(), window.end(),
                                      [&](const Slot& a, const Slot& b) { return need(a) < need(b); });
  return least->leases > 0 ? nullptr : &*least;
}

void WeightWindow::fetch(Slot& slot, BlockId block) {
  const int64_t version = feed_->version();
  const Tensor to = slot.memory.flat(0, table_.block(block).numel);
  fetch_.range(fmt::format("version {} of block {}", version, block));
  fetch_.wait(slot.read);
  feed_->fetch(block, fetch_, to);
  slot.block = block;
  slot.version = version;
  slot.fetched = fetch_.record();
  fetched_bytes_ += to.bytes();
}

void WeightWindow::released(BlockId block, Pass pass, Stream& stream) {
  Slot* slot = find(block);
  ASSERT(slot != nullptr && slot->leases > 0, "block {} is not leased", block);
  --slot->leases;
  slot->read = stream.record();
  feed_->released(block, pass, slot->fetched);
}

}  // namespace tandem
