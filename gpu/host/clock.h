#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::gpu {

/// Who can be ordered: a stream, a lane, or a host thread; numbered as they appear.
using Actor = uint32_t;

/// A vector clock: for each actor, how many of its events are known to have happened. What was never heard of
/// is 0.
class Clock {
 public:
  [[nodiscard]] uint64_t at(Actor actor) const { return actor < ticks_.size() ? ticks_[actor] : 0; }
  /// One more event of the actor; its number, from 1.
  uint64_t tick(Actor actor) {
    if (actor >= ticks_.size()) ticks_.resize(actor + 1);
    return ++ticks_[actor];
  }
  /// Everything that the other knows is known here too.
  void join(const Clock& other) {
    if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size());
    for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
  /// True if the other knows nothing that is not known here.
  [[nodiscard]] bool covers(const Clock& other) const {
    for (size_t i = 0; i < other.ticks_.size(); ++i)
      if (other.ticks_[i] > at(static_cast<Actor>(i))) return false;
    return true;
  }

 private:
  std::vector<uint64_t> ticks_;
};

}  // namespace tandem::gpu
