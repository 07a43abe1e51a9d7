#include "offload/grad_stream.h"

#include <algorithm>

namespace tandem {

GradStream::GradStream(const TrainSetup& setup, const ParamTable& table, Device& device, Slots& slots,
                       Stream& d2h, OnLanding on_landing)
    : setup_(setup),
      table_(table),
      ops_(device.ops()),
      slots_(slots),
      d2h_(d2h),
      on_landing_(std::move(on_landing)),
      open_(static_cast<size_t>(table.block_count())) {
  const BucketPlan plan = plan_buckets(setup, table);
  memory_ = device.allocate(plan.bytes(setup.dtype), "gradients");
  size_t offset = 0;
  const auto cut = [&](DType dtype, int64_t elements) {
    const Tensor tensor = memory_.tensor(dtype, {elements}, offset);
    offset += tensor.bytes();
    return tensor;
  };
  const auto fill = [&](std::deque<Bucket>& pool, int count, int64_t elements) {
    for (int i = 0; i < count; ++i) {
      const Tensor sum = cut(DType::f32, elements);
      pool.push_back({sum, plan.staging ? cut(setup.dtype, elements) : Tensor{}, {}});
    }
  };
  fill(layer_pool_, plan.layer_buckets, plan.layer_elements);
  fill(vocab_pool_, plan.vocab_buckets, plan.vocab_elements);
}

void GradStream::begin(int64_t step, Tensor scalars) {
  step_ = step;
  scalars_ = scalars;
  for (Open& open : open_) {
    ASSERT(open.uses.empty(), "a gradient bucket is still open at the start of step {}", step);
    open = Open{};
  }
}

std::deque<GradStream::Bucket>& GradStream::pool(BlockId block) {
  return is_vocab_block(setup_.arch, table_, block) ? vocab_pool_ : layer_pool_;
}

Tensor GradStream::open(BlockId block, Stream& stream) {
  Open& open = open_.at(static_cast<size_t>(block));
  const int64_t numel = table_.block(block).trained;
  const auto use = static_cast<size_t>(open.opened++);
  if (use == open.uses.size()) {
    std::deque<Bucket>& free = pool(block);
    ASSERT(!free.empty(), "no gradient bucket is free for block {}", block);
    Bucket bucket = std::move(free.front());
    free.pop_front();
    if (bucket.staging.empty()) stream.wait(bucket.sent);
    stream.fill_zero(bucket.sum.flat(0, numel));
    open.uses.push_back(std::move(bucket));
  }
  return open.uses.at(use).sum.flat(0, numel);
}

void GradStream::close(BlockId block, Stream& stream) {
  Open& open = open_.at(static_cast<size_t>(block));
  if (++open.closed < table_.block(block).grad_uses) return;
  open.opened = open.closed = 0;
  if (++open.passes < setup_.groups()) return;
  finish(block, open, stream);
  open.uses.clear();
}

void GradStream::finish(BlockId block, Open& open, Stream& stream) {
  const int64_t numel = table_.block(block).trained;
  const Slots::Landing slot = slots_.land(block, step_);
  const bool to_host = setup_.placement[static_cast<size_t>(block)] == Placement::host;
  Bucket& first = open.uses.front();
  const Tensor sum = first.sum.flat(0, numel);
  for (size_t use = 1; use < open.uses.size(); ++use)
    ops_.add(stream, sum, sum, open.uses[use].sum.flat(0, numel));

  Tensor rounded = sum;
  if (!to_host) {
    slot.wait_until_free(stream);
    rounded = slot.memory;
    setup_.dtype == DType::f32 ? stream.copy(rounded, sum) : ops_.cast(stream, rounded, sum);
  } else if (setup_.dtype != DType::f32) {
    stream.wait(first.sent);
    rounded = first.staging.flat(0, numel);
    ops_.cast(stream, rounded, sum);
  }
  ops_.sum_of_squares(stream, scalars_.flat(2 * block, 2), rounded);
  Fence done = stream.record();
  if (to_host) {
    d2h_.range("gradient of " + table_.block(block).name);
    d2h_.wait(done);
    slot.wait_until_free(d2h_);
    d2h_.copy(slot.memory, rounded);
    first.sent = done = d2h_.record();
  }
  for (Bucket& bucket : open.uses) pool(block).push_back(std::move(bucket));
  on_landing_(block, done);
}

size_t GradStream::bytes_per_step() const {
  return static_cast<size_t>(plane_elements(setup_, table_).host_elements) * size_of(setup_.dtype);
}

}  // namespace tandem
