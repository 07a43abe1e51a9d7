#include "offload/step_policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"

namespace tandem {

namespace {
constexpr int64_t kRemembered = 8;  // steps: more than are ever in flight
}

PolicyState StepPolicy::initial(const PolicyOptions& options) {
  PolicyState state;
  state.scaler = LossScaler(options.loss_scale).state();
  return state;
}

StepPolicy::StepPolicy(const PolicyOptions& options, const PolicyState& start)
    : options_(options), now_(start), used_until_(start.step - 1), decided_until_(start.step - 1) {
  if (!start.pending.empty()) used_until_ = start.pending.front().step - 1;
  for (const StepFacts& facts : start.pending) facts_[facts.step] = facts;
  now_.pending.clear();
  if (options_.staleness_limit == 0) now_.staleness = {};
  steps_[start.step - 1] = Step{start.lag, start.scaler.scale, now_, used_until_};
  advance();
}

void StepPolicy::decided(const StepFacts& facts) {
  const std::lock_guard lock(mutex_);
  ASSERT(facts.step == decided_until_ + 1, "facts of step {} after those of step {}", facts.step,
         decided_until_);
  decided_until_ = facts.step;
  facts_[facts.step] = facts;
  advance();
}

/// Computes lag and scale of all steps that the known facts allow.
void StepPolicy::advance() {
  for (int64_t horizon = now_.step - 1 - now_.lag; horizon <= decided_until_;
       horizon = now_.step - 1 - now_.lag) {
    const int64_t step = now_.step;
    Step next;
    next.before = now_;
    next.used_until_before = used_until_;
    while (used_until_ < horizon) use(facts_.at(++used_until_));
    const bool late = options_.schedule == Schedule::delayed && step >= options_.warmup_steps &&
                      step >= now_.zero_until_step;
    next.lag = late ? 1 : 0;
    next.scale = now_.scaler.scale;
    if (next.lag != now_.lag) now_.since_step = step;
    now_.lag = next.lag;
    now_.step = step + 1;
    steps_[step] = std::move(next);
    steps_.erase(steps_.begin(), steps_.lower_bound(step - kRemembered));
    facts_.erase(facts_.begin(), facts_.lower_bound(step - kRemembered));
  }
}

/// Lets one finished step act on the scaler and, if it overflowed or the loss has risen too far, on the lag
/// of the steps from now_.step on.
void StepPolicy::use(const StepFacts& facts) {
  LossScaler scaler(options_.loss_scale, now_.scaler);
  scaler.update(facts.nonfinite, facts.scale == scaler.scale());
  now_.scaler = scaler.state();
  const bool stale = options_.staleness_limit > 0 && passes_limit(facts.loss);
  if (facts.nonfinite || stale) now_.zero_until_step = now_.step + options_.warmup_steps;
}

/// Takes in one more loss. True if the mean of the last ones is too far above the lowest such mean before it.
bool StepPolicy::passes_limit(double loss) {
  StalenessState& state = now_.staleness;
  if (!std::isfinite(loss)) return false;
  state.losses.push_back(loss);
  if (state.losses.size() > kStalenessWindow) state.losses.pop_front();
  if (state.losses.size() < kStalenessWindow) return false;
  const double mean = std::accumulate(state.losses.begin(), state.losses.end(), 0.0) / kStalenessWindow;
  const double lowest = std::min(state.lowest.value_or(mean), mean);
  state.lowest = lowest;
  return mean > lowest + options_.staleness_limit;
}

const StepPolicy::Step& StepPolicy::at(int64_t step) const {
  const auto found = steps_.find(step);
  ASSERT(found != steps_.end(), "the lag of step {} is not known (facts until step {})", step,
         decided_until_);
  return found->second;
}

bool StepPolicy::knows(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return steps_.contains(step);
}

int64_t StepPolicy::waits_for(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return step - 1 - at(step - 1).lag;
}

int StepPolicy::lag(int64_t step) const {
  if (options_.schedule != Schedule::delayed) return 0;
  const std::lock_guard lock(mutex_);
  return at(step).lag;
}

double StepPolicy::scale(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return at(step).scale;
}

int64_t StepPolicy::read(int64_t step) const { return std::max<int64_t>(0, step - lag(step)); }

bool StepPolicy::is_read(int64_t version) const { return lag(version) == 0 || lag(version + 1) == 1; }

bool StepPolicy::read_late_only(int64_t version) const { return lag(version) == 1 && lag(version + 1) == 1; }

bool StepPolicy::knows_last_reader(int64_t version) const {
  return options_.schedule != Schedule::delayed || knows(version + 1);
}

int64_t StepPolicy::last_reader(int64_t version) const {
  return lag(version + 1) == 1 ? version + 1 : version;
}

PolicyState StepPolicy::state_before(int64_t step) const {
  const std::lock_guard lock(mutex_);
  PolicyState state = at(step).before;
  for (int64_t known = at(step).used_until_before + 1; known <= decided_until_; ++known)
    state.pending.push_back(facts_.at(known));
  return state;
}

}  // namespace tandem
