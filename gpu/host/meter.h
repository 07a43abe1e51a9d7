#pragma once
// Where the time of a stream goes.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/device/device.h"

namespace tandem::gpu {

using Nanos = int64_t;
Nanos steady_now();

/// A stream's time up to a moment: complete, busy + idle = at - (when it was opened).
struct Spent {
  Nanos at = 0, busy = 0;
  std::array<Nanos, 5> idle{};  ///< by what the stream waited for
};

/// A piece of a stream's time as a meter counts it.
struct Slice {
  Nanos begin = 0, end = 0;
  bool busy = false;
  Purpose cause = Purpose::other;  ///< of idle time
};

StreamTimes times_between(const Spent& from, const Spent& to);

/// The recent past of a stream, as someone sees it who waits for the stream: contiguous pieces; while it was
/// busy the cause is its own purpose, while it was idle what it waited for itself. Older pieces are
/// forgotten.
class Past {
 public:
  static constexpr size_t kPieces = 32;
  struct Piece {
    Nanos until = 0;
    Purpose cause = Purpose::other;
  };
  explicit Past(Nanos begin) : begin_(begin) {}
  void add(Nanos until, Purpose cause);
  [[nodiscard]] Nanos begin() const { return begin_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  Nanos begin_;
  std::vector<Piece> pieces_;
};

/// What a waiter needs to know of a moment that has passed.
struct Passed {
  Spent spent;
  Past past{0};
  Purpose purpose = Purpose::other;
};

/// Times are given from outside, never smaller than the one before.
class Meter {
 public:
  Meter(Purpose own, Nanos now) : own_(own), past_(now) { spent_.at = now; }
  /// An operation ran until now.
  void busy_until(Nanos now);
  /// The thread was slow to wake.
  void idle_until(Nanos now) { idle_until(now, Purpose::other); }
  /// The queue was empty until something was put into it at `queued`: that time goes to what held up whoever
  /// put it there.
  void starved_until(Nanos queued, const Passed& source) { idle_like(queued, source); }
  /// A wait ended now that was in the queue since `queued`. What it really held goes to what the awaited
  /// stream did in that time.
  void waited_until(Nanos now, Nanos queued, const Passed& awaited);
  [[nodiscard]] Passed passed() const { return {spent_, past_, own_}; }
  [[nodiscard]] Purpose own() const { return own_; }

  [[nodiscard]] Nanos at() const { return spent_.at; }

  /// Whether what is counted from now on is kept as slices as well, busy neighbours as one, until taken.
  void keep_slices(bool keep);
  [[nodiscard]] std::vector<Slice> take_slices() { return std::exchange(slices_, {}); }

 private:
  void keep(Slice slice);
  void idle_until(Nanos now, Purpose cause);
  void idle_like(Nanos now, const Passed& other);
  Purpose own_;
  Spent spent_;
  Past past_;
  bool keeps_slices_ = false;
  std::vector<Slice> slices_;
};

}  // namespace tandem::gpu
