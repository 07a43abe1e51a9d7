#pragma once
// Which version a step reads and which loss scale it uses: pure functions of the configuration, the step and
// what earlier steps turned out to be. Nothing here depends on timing.
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/run/loss_scale.h"

namespace tandem {

enum class Schedule : uint8_t {
  synchronous,  ///< lag 0; the next step waits for the whole update
  exact,        ///< lag 0; the next step waits block by block
  delayed,      ///< lag 1 after a warm-up: the update of step i runs behind step i + 1
};

struct PolicyOptions {
  Schedule schedule = Schedule::synchronous;
  int64_t warmup_steps = 40;  ///< delayed: steps at lag 0 at the start, and again after an overflow
  LossScaleConfig loss_scale{.fixed = 1};
  double staleness_limit =
      0;  ///< delayed: nats by which the loss may rise before lag is 0 for as long; 0 = off
};

/// Steps over whose losses the staleness limit takes means.
constexpr size_t kStalenessWindow = 20;

/// What the staleness limit remembers; nothing where it is off.
struct StalenessState {
  std::deque<double> losses;     ///< of the last kStalenessWindow steps that had a finite one, oldest first
  std::optional<double> lowest;  ///< of their means so far; none until a window was full
  friend bool operator==(const StalenessState&, const StalenessState&) = default;
};

/// What a finished step turned out to be, as far as later steps look at it.
struct StepFacts {
  int64_t step = 0;
  bool nonfinite = false;
  double loss = 0;   ///< mean; NaN where nothing was trained
  double scale = 1;  ///< the loss scale that its gradient carried
};

/// The policy as the start of `step` sees it, before any fact that it must not use.
struct PolicyState {
  int64_t step = 0;             ///< the next step to start
  int lag = 0;                  ///< of the step before it
  int64_t since_step = 0;       ///< the lag has been that since this step
  int64_t zero_until_step = 0;  ///< lag 0 before this step
  LossScaleState scaler;
  StalenessState staleness;
  std::vector<StepFacts> pending;  ///< known, in step order, but not to be used by `step` yet
};

/// Steps count from 0. lag(i) and scale(i) use the facts of steps up to i - 1 - lag(i - 1) only. Thread-safe.
class StepPolicy {
 public:
  /// A fresh run: PolicyState{} with the initial scaler state.
  static PolicyState initial(const PolicyOptions& options);
  StepPolicy(const PolicyOptions& options, const PolicyState& start);

  /// Adds the facts of the next step, in step order.
  void decided(const StepFacts& facts);
  /// True once lag(step) and scale(step) follow from what is known.
  [[nodiscard]] bool knows(int64_t step) const;
  /// The step whose facts lag(step) and scale(step) wait for; negative: none. lag(step - 1) must be known.
  [[nodiscard]] int64_t waits_for(int64_t step) const;
  /// Known before any fact where the schedule never delays.
  [[nodiscard]] int lag(int64_t step) const;
  [[nodiscard]] double scale(int64_t step) const;
  /// The version that the step's forward reads: max(0, step - lag(step)).
  [[nodiscard]] int64_t read(int64_t step) const;
  /// Whether some step reads the version. lag(version) must be known, and lag(version + 1) too where
  /// lag(version) is 1.
  [[nodiscard]] bool is_read(int64_t version) const;
  /// Whether version is read by forwards at lag 1 only, so that a prediction may be published for it.
  [[nodiscard]] bool read_late_only(int64_t version) const;
  /// Whether last_reader(version) follows from what is known.
  [[nodiscard]] bool knows_last_reader(int64_t version) const;
  /// The last step that reads the version (which some step does). lag(version + 1) must be known.
  [[nodiscard]] int64_t last_reader(int64_t version) const;
  /// For a checkpoint before `step`, whose lag must be known.
  [[nodiscard]] PolicyState state_before(int64_t step) const;

 private:
  struct Step {
    int lag = 0;
    double scale = 1;
    PolicyState before;  ///< its pending facts are left out: they may grow until they are asked for
    int64_t used_until_before = 0;
  };
  [[nodiscard]] const Step& at(int64_t step) const;
  void advance();
  void use(const StepFacts& facts);
  [[nodiscard]] bool passes_limit(double loss);
  const PolicyOptions options_;
  mutable std::mutex mutex_;
  PolicyState now_;  ///< before the first step that is not known yet, without its pending facts
  std::map<int64_t, StepFacts> facts_;  ///< the last few, and all that are not used yet
  int64_t used_until_, decided_until_;  ///< the last step whose facts have been used; are in
  std::map<int64_t, Step> steps_;       ///< the last few known steps
};

}  // namespace tandem
