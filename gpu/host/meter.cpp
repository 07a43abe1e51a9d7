#include "gpu/host/meter.h"

#include <algorithm>
#include <chrono>

namespace tandem::gpu {

Nanos steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StreamTimes times_between(const Spent& from, const Spent& to) {
  const auto idle = [&](Purpose cause) {
    const auto i = static_cast<size_t>(cause);
    return static_cast<double>(to.idle[i] - from.idle[i]) * 1e-6;
  };
  StreamTimes times;
  times.total_ms = static_cast<double>(to.at - from.at) * 1e-6;
  times.busy_ms = static_cast<double>(to.busy - from.busy) * 1e-6;
  times.d2h_ms = idle(Purpose::d2h);
  times.adam_ms = idle(Purpose::adam);
  times.h2d_ms = idle(Purpose::h2d);
  times.other_ms = idle(Purpose::other) + idle(Purpose::compute);
  times.from_ns = from.at;
  times.to_ns = to.at;
  return times;
}

void Past::add(Nanos until, Purpose cause) {
  if (!pieces_.empty() && pieces_.back().cause == cause) {
    pieces_.back().until = until;
    return;
  }
  if (pieces_.size() == kPieces) {
    begin_ = pieces_.front().until;
    pieces_.erase(pieces_.begin());
  }
  pieces_.push_back({until, cause});
}

void Meter::keep_slices(bool keep) {
  keeps_slices_ = keep;
  slices_.clear();
}

void Meter::keep(Slice slice) {
  if (!keeps_slices_ || slice.begin == slice.end) return;
  if (slice.busy && !slices_.empty() && slices_.back().busy)
    slices_.back().end = slice.end;
  else
    slices_.push_back(slice);
}

void Meter::busy_until(Nanos now) {
  keep({spent_.at, now, true, Purpose::other});
  spent_.busy += now - spent_.at;
  spent_.at = now;
  past_.add(now, own_);
}

void Meter::idle_until(Nanos now, Purpose cause) {
  if (now <= spent_.at) return;
  keep({spent_.at, now, false, cause});
  spent_.idle[static_cast<size_t>(cause)] += now - spent_.at;
  spent_.at = now;
  past_.add(now, cause);
}

void Meter::waited_until(Nanos now, Nanos queued, const Passed& awaited) {
  idle_until(std::min(queued, now));
  if (awaited.spent.at <= spent_.at) return idle_until(now);  // it had passed already
  idle_like(now, awaited);
}

/// Idle until now, by what the other one did in that time; after the end of its past, by its own purpose.
void Meter::idle_like(Nanos now, const Passed& other) {
  idle_until(std::min(other.past.begin(), now));
  for (const Past::Piece& piece : other.past.pieces()) idle_until(std::min(piece.until, now), piece.cause);
  idle_until(now, other.purpose);
}

}  // namespace tandem::gpu
