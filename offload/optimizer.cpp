#include "offload/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/math/reduce_tree.h"
#include "cpu_adam/adam.h"
#include "offload/memory_plan.h"

namespace tandem {

namespace {
constexpr int64_t kRemembered = 8;  // decisions: more than steps are ever in flight
}

std::vector<BlockId> update_order(Schedule schedule, const ParamTable& table) {
  std::vector<BlockId> order;
  for (BlockId block = 0; block < table.block_count(); ++block)
    if (table.block(block).trained > 0) order.push_back(block);
  if (schedule != Schedule::exact) std::ranges::reverse(order);
  return order;
}

std::vector<std::string> Optimizer::lane_names(const TrainSetup& setup, const ParamTable& table) {
  std::vector<std::string> names{"optimizer"};
  if (setup.updates_early())
    for (const BlockId block : update_order(setup.policy.schedule, table))
      names.push_back("optimizer of " + table.block(block).name);
  return names;
}

Optimizer::Optimizer(const Parts& parts, const Progress& start)
    : parts_(parts),
      order_(update_order(parts.setup.policy.schedule, parts.table)),
      slice_places_(slice_places(parts.setup, parts.table)),
      lane_of_(static_cast<size_t>(parts.table.block_count()), parts.lanes.front().get()),
      progress_(start) {
  if (parts.setup.updates_early())
    for (size_t i = 0; i < order_.size(); ++i)
      lane_of_[static_cast<size_t>(order_[i])] = parts.lanes.at(i + 1).get();
}

bool Optimizer::on_host(BlockId block) const {
  return parts_.setup.placement[static_cast<size_t>(block)] == Placement::host;
}

void Optimizer::begin(int64_t step, int64_t tokens) {
  step_ = step;
  tokens_ = tokens;
  landed_.clear();
  for (const auto& lane : parts_.lanes) lane->range(fmt::format("update of step {}", step + 1));
  if (!parts_.setup.updates_early()) return;
  const Decision foreseen = settle(step, tokens, true, 0);
  const std::lock_guard lock(mutex_);
  decisions_[step] = foreseen;
}

void Optimizer::landed(BlockId block, const Fence& fence) {
  landed_[block] = fence;
  if (parts_.setup.updates_early()) enqueue(block, fence);
}

Fence Optimizer::finish(const LandedScalars& numbers, const Fence& numbers_landed) {
  ASSERT(landed_.size() == order_.size(), "{} of {} gradients have closed", landed_.size(), order_.size());
  HostLane& lane = *parts_.lanes.front();
  lane.wait(numbers_landed);
  lane.run({"decide", read_by_decision(numbers), {}, [this, step = step_, tokens = tokens_, numbers] {
              decide(step, numbers, tokens);
            }});
  Fence decided = lane.record();
  if (!parts_.setup.updates_early())
    for (const BlockId block : order_) enqueue(block, landed_.at(block));
  return decided;
}

/// The numbers; and the gradients, in which the first bad tensor is looked for, unless Adam may have been
/// there first.
std::vector<Tensor> Optimizer::read_by_decision(const LandedScalars& numbers) const {
  std::vector<Tensor> reads{numbers.slices, numbers.losses};
  for (const BlockId block : order_)
    if (on_host(block) && !parts_.setup.updates_early()) reads.push_back(parts_.slots.gradient(block, step_));
  return reads;
}

/// What a gradient of that norm comes to. Loss and prediction are still to be set.
Decision Optimizer::settle(int64_t step, int64_t tokens, bool finite, double grad_norm) const {
  const TrainSetup& setup = parts_.setup;
  const Progress progress = this->progress();
  Decision d;
  d.step = step;
  d.tokens = tokens;
  d.loss_scale = parts_.policy.scale(step);
  d.grad_norm = grad_norm;
  d.skipped = !finite || tokens == 0;
  d.clip_coef = setup.clip > 0 && !d.skipped ? std::min(1.0, setup.clip / (grad_norm + 1e-6)) : 1.0;
  d.lr = setup.lr(progress.updates);
  d.updates = progress.updates + (d.skipped ? 0 : 1);
  if (!d.skipped) d.scalars = adam_scalars(setup.adam, d.lr, d.updates, d.clip_coef, d.loss_scale);
  return d;
}

void Optimizer::decide(int64_t step, const LandedScalars& numbers, int64_t tokens) {
  const TrainSetup& setup = parts_.setup;
  double squares = 0, loss = 0;
  BlockId first_bad = -1;
  for (BlockId block = 0; block < parts_.table.block_count(); ++block) {
    const auto [of_block, finite] = sum_up(block, numbers);
    squares += of_block;
    if (first_bad < 0 && !finite) first_bad = block;
  }
  for (int64_t m = 0; m < setup.micro_batches; ++m)
    loss += parts_.device.read(Scalar{numbers.losses.flat(m, 1)});
  Decision d = settle(step, tokens, first_bad < 0, std::sqrt(squares) / parts_.policy.scale(step));
  d.loss = tokens > 0 ? loss / static_cast<double>(tokens) : 0.0;
  {
    const std::lock_guard lock(mutex_);
    progress_.updates = d.updates;
    progress_.skipped += d.skipped ? 1 : 0;
    progress_.skipped_in_a_row = first_bad >= 0 ? progress_.skipped_in_a_row + 1 : 0;
    decisions_[step] = d;
  }
  if (first_bad >= 0) refuse_nonfinite(d, first_bad);
  parts_.policy.decided(
      {step, first_bad >= 0, tokens > 0 ? d.loss : std::numeric_limits<double>::quiet_NaN(), d.loss_scale});

  const std::lock_guard lock(mutex_);
  if (!d.skipped && parts_.policy.read_late_only(step + 1)) decisions_[step].prediction = setup.prediction;
  decisions_.erase(decisions_.begin(), decisions_.lower_bound(step - kRemembered));
  sums_.erase(sums_.begin(), sums_.lower_bound(step - kRemembered));
}

std::pair<double, bool> Optimizer::sum_up(BlockId block, const LandedScalars& numbers) const {
  std::vector<double> sums;
  bool finite = true;
  const auto b = static_cast<size_t>(block);
  for (int64_t slice = slice_places_[b]; slice < slice_places_[b + 1]; ++slice) {
    const auto number = [&](int64_t i) {
      return parts_.device.read(Scalar{numbers.slices.flat(2 * slice + i, 1)});
    };
    sums.push_back(number(0));
    finite = finite && number(1) == 0;
  }
  return {reduce_leaves(sums.data(), std::ssize(sums)), finite};
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
  if (!on_host(block) || parts_.setup.updates_early()) return parts_.table.block(block).name;
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

/// Behind the decision, or on a lane that has nothing to do with it.
void Optimizer::enqueue(BlockId block, const Fence& landed) {
  HostLane& lane = *lane_of_[static_cast<size_t>(block)];
  lane.wait(landed);
  on_host(block) ? enqueue_host(lane, block, step_) : enqueue_device(lane, block, step_);
}

void Optimizer::enqueue_host(HostLane& lane, BlockId block, int64_t step) {
  const Tensor slot = parts_.slots.gradient(block, step);
  const std::string name = parts_.table.block(block).name;
  const BlockStates states = parts_.states.at(block, parts_.slots, step);
  std::vector<Tensor> written = parts_.states.block(block).planes(), read = states.planes();
  for (std::vector<Tensor>* touched : {&written, &read}) touched->push_back(slot);
  lane.run({"adam " + name, read, written,
            [this, block, step, states, slot] { update_on_host(block, step, states, slot); }});
  const Fence finished = lane.record();
  if (parts_.states.upper_in_slot(block)) parts_.slots.release(block, step, finished);
  lane.run({"publish " + name, {}, {}, [this, block, step, finished] {
              parts_.ring.publish(block, step + 1, finished);
            }});
}

void Optimizer::update_on_host(BlockId block, int64_t step, const BlockStates& states, Tensor slot) {
  const Decision d = decision(step);
  if (d.skipped) {
    rounded_masters(parts_.workers, parts_.setup.isa, states, 0, slot);
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  const AdamSums sums = update_elements(d, block, states, slot);
  const std::chrono::duration<double> busy = std::chrono::steady_clock::now() - begin;
  const std::lock_guard lock(mutex_);
  work_.seconds += busy.count();
  work_.parameters += slot.numel();
  sums_[step][block] = sums;
}

AdamSums Optimizer::update_elements(const Decision& d, BlockId block, const BlockStates& states,
                                    Tensor slot) {
  AdamSums sums;
  const bool in_slot = parts_.states.upper_in_slot(block);
  const StateFormat format = parts_.setup.format(block);
  for (const AdamPass& pass : adam_passes(parts_.table, block, format)) {
    const Tensor gradient = slot.flat(pass.first, pass.count),
                 upper = upper_of(states, pass.first, pass.count);
    adam(parts_.workers, parts_.setup.isa,
         {states_of(states, format, pass.first, pass.count), gradient, gradient, upper,
          in_slot ? gradient : upper},
         decay_of(pass.decay), d.scalars, d.prediction,
         {{parts_.setup.seed, pass.parameter, static_cast<uint32_t>(d.updates)}, 0}, &sums);
  }
  return sums;
}

/// The launch itself is work of the lane: when the scalars are known, and in the order of its turns.
void Optimizer::enqueue_device(HostLane& lane, BlockId block, int64_t step) {
  const Tensor slot = parts_.slots.gradient(block, step);
  lane.run({"launch adam " + parts_.table.block(block).name, {}, {}, [this, block, step, slot] {
              update_on_device(block, step, slot);
            }});
}

void Optimizer::update_on_device(BlockId block, int64_t step, Tensor slot) {
  const Decision d = decision(step);
  const BlockStates& states = parts_.states.block(block);
  Stream& stream = parts_.device_adam;
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

std::optional<AdamSums> Optimizer::sums(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto found = sums_.find(step);
  if (found == sums_.end()) return std::nullopt;
  AdamSums all;
  for (const auto& [block, sums] : found->second) all += sums;
  return all;
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
