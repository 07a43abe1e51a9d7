#include "offload/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cpu_adam/adam.h"
#include "cpu_adam/host_reduce.h"

namespace tandem {

namespace {
constexpr int64_t kRemembered = 8;  // decisions: more than steps are ever in flight
}

Optimizer::Optimizer(const Parts& parts, const Progress& start) : parts_(parts), progress_(start) {}

bool Optimizer::on_host(BlockId block) const {
  return parts_.setup.placement[static_cast<size_t>(block)] == Placement::host;
}

Fence Optimizer::enqueue(int64_t step, const LandedScalars& numbers, const Fence& numbers_landed,
                         int64_t tokens, std::vector<Landed> landed) {
  HostLane& lane = parts_.lane;
  lane.range(fmt::format("update of step {}", step));
  lane.wait(numbers_landed);
  lane.run({"decide", read_by_decision(step, numbers), {}, [this, step, numbers, tokens] {
              decide(step, numbers, tokens);
            }});
  Fence decided = lane.record();
  for (const Landed& gradient : landed) {
    on_host(gradient.block) ? enqueue_host(gradient.block, step, gradient.fence)
                            : enqueue_device(gradient.block, step, gradient.fence);
  }
  return decided;
}

/// The numbers, and the gradients, in which the first bad tensor is looked for.
std::vector<Tensor> Optimizer::read_by_decision(int64_t step, const LandedScalars& numbers) const {
  std::vector<Tensor> reads{numbers.blocks, numbers.losses};
  for (BlockId block = 0; block < parts_.table.block_count(); ++block)
    if (on_host(block) && parts_.table.block(block).trained > 0)
      reads.push_back(parts_.slots.gradient(block, step));
  return reads;
}

void Optimizer::decide(int64_t step, const LandedScalars& numbers, int64_t tokens) {
  const TrainSetup& setup = parts_.setup;
  const auto number = [&](Tensor from, int64_t i) { return parts_.device.read(Scalar{from.flat(i, 1)}); };
  Decision d;
  d.step = step;
  d.tokens = tokens;
  d.loss_scale = parts_.policy.scale(step);
  double squares = 0, loss = 0;
  BlockId first_bad = -1;
  for (BlockId block = 0; block < parts_.table.block_count(); ++block) {
    squares += number(numbers.blocks, 2 * block);
    if (first_bad < 0 && number(numbers.blocks, 2 * block + 1) > 0) first_bad = block;
  }
  for (int64_t m = 0; m < setup.micro_batches; ++m) loss += number(numbers.losses, m);
  d.loss = tokens > 0 ? loss / static_cast<double>(tokens) : 0.0;
  d.grad_norm = std::sqrt(squares) / d.loss_scale;
  d.skipped = first_bad >= 0 || tokens == 0;
  d.clip_coef = setup.clip > 0 && !d.skipped ? std::min(1.0, setup.clip / (d.grad_norm + 1e-6)) : 1.0;

  Progress progress = this->progress();
  d.lr = setup.lr(progress.updates);
  progress.updates += d.skipped ? 0 : 1;
  progress.skipped += d.skipped ? 1 : 0;
  progress.skipped_in_a_row = first_bad >= 0 ? progress.skipped_in_a_row + 1 : 0;
  d.updates = progress.updates;
  if (!d.skipped) d.scalars = adam_scalars(setup.adam, d.lr, d.updates, d.clip_coef, d.loss_scale);
  {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    decisions_[step] = d;
  }
  if (first_bad >= 0) refuse_nonfinite(d, first_bad);
  parts_.policy.decided({step, first_bad >= 0, d.loss, d.loss_scale});

  const std::lock_guard lock(mutex_);
  if (!d.skipped && parts_.policy.read_late_only(step + 1)) decisions_[step].prediction = setup.prediction;
  decisions_.erase(decisions_.begin(), decisions_.lower_bound(step - kRemembered));
}

/// Ends the run where the configuration says so, naming the first tensor whose gradient is not finite.
void Optimizer::refuse_nonfinite(const Decision& d, BlockId first_bad) const {
  const TrainSetup& setup = parts_.setup;
  const int64_t in_a_row = progress().skipped_in_a_row;
  const bool stop = setup.on_nonfinite == OnNonfinite::stop;
  if (!stop && in_a_row < setup.max_skipped_in_a_row) return;
  throw Error(Status::failed,
              stop ? fmt::format("the gradient of step {} is not finite", d.step + 1)
                   : fmt::format("{} steps in a row had a gradient that is not finite, the last one step {}",
                                 in_a_row, d.step + 1),
              first_bad_tensor(first_bad, d.step),
              stop ? "a lower lr, gradient_clipping, or train.on_nonfinite: \"skip\""
                   : "a lower lr or gradient_clipping; train.max_skipped_in_a_row allows more");
}

std::string Optimizer::first_bad_tensor(BlockId block, int64_t step) const {
  if (!on_host(block)) return parts_.table.block(block).name;
  const Tensor gradient = parts_.slots.gradient(block, step);
  const auto bad = [&](int64_t i) {
    switch (gradient.dtype()) {
      case DType::bf16:
        return non_finite(gradient.data<bf16>()[i]);
      case DType::f16:
        return non_finite(gradient.data<f16>()[i]);
      default:
        return non_finite(gradient.data<float>()[i]);
    }
  };
  for (const ParamSpec& spec : parts_.table.of_block(block))
    for (int64_t i = spec.offset; !spec.frozen && i < spec.offset + spec.numel; ++i)
      if (bad(i)) return spec.name;
  return parts_.table.block(block).name;
}

Decay Optimizer::decay_of(bool decays) const {
  if (!decays || parts_.setup.adam.weight_decay == 0) return Decay::none;
  return parts_.setup.adam.decoupled ? Decay::decoupled : Decay::l2;
}

void Optimizer::enqueue_host(BlockId block, int64_t step, const Fence& landed) {
  HostLane& lane = parts_.lane;
  const BlockStates& states = parts_.states.block(block);
  const Tensor slot = parts_.slots.gradient(block, step);
  const std::string name = parts_.table.block(block).name;
  lane.wait(landed);
  std::vector<Tensor> touched = states.planes();
  touched.push_back(slot);
  lane.run(
      {"adam " + name, touched, touched, [this, block, step, slot] { update_on_host(block, step, slot); }});
  const Fence finished = lane.record();
  lane.run({"publish " + name, {}, {}, [this, block, step, finished] {
              parts_.ring.publish(block, step + 1, finished);
            }});
}

void Optimizer::update_on_host(BlockId block, int64_t step, Tensor slot) {
  const Decision d = decision(step);
  const BlockStates& states = parts_.states.block(block);
  if (d.skipped) {
    rounded_masters(parts_.workers, parts_.setup.isa, states, 0, slot);
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  update_elements(d, block, slot);
  const std::chrono::duration<double> busy = std::chrono::steady_clock::now() - begin;
  const std::lock_guard lock(mutex_);
  work_.seconds += busy.count();
  work_.parameters += slot.numel();
}

void Optimizer::update_elements(const Decision& d, BlockId block, Tensor slot) {
  const BlockStates& states = parts_.states.block(block);
  const StateFormat format = parts_.setup.format(block);
  for (const AdamPass& pass : adam_passes(parts_.table, block, format)) {
    const Tensor gradient = slot.flat(pass.first, pass.count),
                 upper = upper_of(states, pass.first, pass.count);
    adam(parts_.workers, parts_.setup.isa,
         {states_of(states, format, pass.first, pass.count), gradient, gradient, upper, upper},
         decay_of(pass.decay), d.scalars, d.prediction,
         {{parts_.setup.seed, pass.parameter, static_cast<uint32_t>(d.updates)}, 0});
  }
}

/// The scalars are known only once the decision is made, so the launch itself is work of the lane.
void Optimizer::enqueue_device(BlockId block, int64_t step, const Fence& landed) {
  const Tensor slot = parts_.slots.gradient(block, step);
  parts_.lane.run(
      {"launch adam " + parts_.table.block(block).name, {}, {}, [this, block, step, slot, landed] {
         update_on_device(block, step, slot, landed);
       }});
}

void Optimizer::update_on_device(BlockId block, int64_t step, Tensor slot, const Fence& landed) {
  const Decision d = decision(step);
  const BlockStates& states = parts_.states.block(block);
  Stream& stream = parts_.device_adam;
  stream.wait(landed);
  if (d.skipped) {
    parts_.device.ops().round_weights(stream, slot, states.master);
  } else {
    for (const DecayRange& range : parts_.table.decay_ranges(block)) {
      const auto part = [&](Tensor plane) { return plane.flat(range.begin, range.count); };
      parts_.device.ops().adam(
          stream,
          {part(states.master), part(states.exp_avg), part(states.exp_avg_sq), part(slot), part(slot)},
          decay_of(range.decay), d.scalars, {d.prediction});
    }
  }
  parts_.ring.publish(block, step + 1, stream.record());
}

Decision Optimizer::decision(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto found = decisions_.find(step);
  ASSERT(found != decisions_.end(), "step {} has not been decided", step);
  return found->second;
}

Progress Optimizer::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

Optimizer::Work Optimizer::work() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

}  // namespace tandem
