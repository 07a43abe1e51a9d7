#include "offload/grad_stream.h"

#include <algorithm>

namespace tandem {

GradStream::GradStream(const TrainSetup& setup, const ParamTable& table, Device& device, Slots& slots,
                       Stream& round, Stream& d2h, OnLanding on_landing)
    : setup_(setup),
      table_(table),
      ops_(device.ops()),
      slots_(slots),
      round_(round),
      d2h_(d2h),
      on_landing_(std::move(on_landing)),
      slice_places_(slice_places(setup, table)),
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
      pool.push_back({cut(DType::f32, elements), {}});
    }
  };
  fill(layer_pool_, plan.layer_buckets, plan.layer_elements);
  fill(vocab_pool_, plan.vocab_buckets, plan.vocab_elements);
  for (int i = 0; plan.staging_elements > 0 && i < kStagings; ++i)
    staging_.push_back({cut(setup.dtype, plan.staging_elements), {}});
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
    stream.wait(bucket.free);
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
  Bucket& first = open.uses.front();
  const Tensor sum = first.sum.flat(0, numel);
  for (size_t use = 1; use < open.uses.size(); ++use)
    ops_.add(stream, sum, sum, open.uses[use].sum.flat(0, numel));

  Fence landed;
  if (setup_.placement[static_cast<size_t>(block)] == Placement::host) {
    landed = send(block, first, slot, stream);
  } else {
    slot.wait_until_free(stream);
    setup_.dtype == DType::f32 ? stream.copy(slot.memory, sum) : ops_.cast(stream, slot.memory, sum);
    for_slices(block, slot.memory,
               [&](Tensor part, Tensor numbers) { ops_.sum_of_squares(stream, numbers, part); });
    landed = stream.record();
  }
  for (Bucket& bucket : open.uses) pool(block).push_back(std::move(bucket));
  on_landing_(block, landed);
}

void GradStream::for_slices(BlockId block, Tensor whole,
                            const std::function<void(Tensor, Tensor)>& body) const {
  const int64_t first = slice_places_.at(static_cast<size_t>(block)),
                slices = setup_.slices_of(whole.numel());
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t begin = i * setup_.slice_elements;
    body(whole.flat(begin, std::min(setup_.slice_elements, whole.numel() - begin)),
         scalars_.flat(2 * (first + i), 2));
  }
}

/// What is rounded goes slice by slice: one is rounded and summed up while the one before it is on its way.
Fence GradStream::send(BlockId block, Bucket& bucket, const Slots::Landing& slot, Stream& stream) {
  const std::string range = "gradient of " + table_.block(block).name;
  round_.range(range);
  d2h_.range(range);
  round_.wait(stream.record());
  const Tensor whole = bucket.sum.flat(0, slot.memory.numel());
  int64_t sent = 0;
  const auto copy = [&](Tensor part) {
    d2h_.wait(round_.record());
    if (sent == 0) slot.wait_until_free(d2h_);
    d2h_.copy(slot.memory.flat(sent, part.numel()), part);
    sent += part.numel();
  };
  for_slices(block, whole, [&](Tensor part, Tensor numbers) {
    if (staging_.empty()) return ops_.sum_of_squares(round_, numbers, part);
    Staging staging = std::move(staging_.front());
    staging_.pop_front();
    const Tensor rounded = staging.memory.flat(0, part.numel());
    round_.wait(staging.sent);
    ops_.cast(round_, rounded, part);
    ops_.sum_of_squares(round_, numbers, rounded);
    copy(rounded);
    staging.sent = d2h_.record();
    staging_.push_back(std::move(staging));
  });
  if (staging_.empty()) copy(whole);
  const Fence landed = d2h_.record();
  bucket.free = staging_.empty() ? landed : round_.record();
  return landed;
}

size_t GradStream::bytes_per_step() const {
  return static_cast<size_t>(plane_elements(setup_, table_).host_elements) * size_of(setup_.dtype);
}

}  // namespace tandem
