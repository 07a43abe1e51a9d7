#include "offload/weight_window.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tandem {

WeightWindow::WeightWindow(const TrainSetup& setup, const ParamTable& table, UpdateRing& ring, Slots& slots,
                           Stream& fetch, Tensor memory, std::vector<Tensor> frozen)
    : setup_(setup),
      table_(table),
      ring_(ring),
      slots_(slots),
      fetch_(fetch),
      resident_(ring),
      frozen_(std::move(frozen)) {
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
  if (!setup_.streams(block)) return resident_.acquire(block, version, pass, stream);
  (void)ring_.arrival(block, version);
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
    if (block < 1 || block >= table_.block_count() || !setup_.streams(block)) return;
    if (find(block) != nullptr) continue;
    Slot* slot = ring_.has_arrived(block) ? least_needed(block, pass) : nullptr;
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
  return slot.block != kNone && (table_.block(slot.block).trained == 0 || slot.version == ring_.version());
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
  const int64_t trained = table_.block(block).trained, version = ring_.version();
  const Tensor frozen = frozen_[static_cast<size_t>(block)];
  fetch_.range(fmt::format("version {} of block {}", version, block));
  fetch_.wait(slot.read);
  if (trained > 0) {
    fetch_.wait(ring_.arrival(block, version));
    fetch_.copy(slot.memory.flat(0, trained), slots_.weights(block, version));
  }
  if (!frozen.empty()) fetch_.copy(slot.memory.flat(trained, frozen.numel()), frozen);
  slot.block = block;
  slot.version = version;
  slot.fetched = fetch_.record();
  fetched_bytes_ += static_cast<size_t>(table_.block(block).numel) * size_of(setup_.dtype);
}

void WeightWindow::released(BlockId block, Pass pass, Stream& stream) {
  Slot* slot = find(block);
  ASSERT(slot != nullptr && slot->leases > 0, "block {} is not leased", block);
  --slot->leases;
  slot->read = stream.record();
  if (pass != Pass::evaluate) ring_.released(block, slot->fetched);
}

}  // namespace tandem
