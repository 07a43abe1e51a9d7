#pragma once
// What a device's streams, lanes and main thread did, piece by piece; from the same records as StreamTimes.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// What a stream is for; exposed time is named after it.
enum class Purpose : uint8_t { compute, d2h, adam, h2d, other };

/// One stream, lane or host thread.
struct TraceTrack {
  enum class Kind : uint8_t { stream, lane, thread };
  std::string name;
  Kind kind = Kind::stream;
  Purpose purpose = Purpose::other;
};

/// A piece of a track's time. Pieces of one track don't overlap; those of a stream have no gaps between them,
/// so that times() of two fences is the sum of the pieces between them.
struct TraceEvent {
  enum class Kind : uint8_t {
    work,  ///< an operation; of a thread: what it does itself
    wait,  ///< for a fence or a promise; of no length where that had passed already
    idle,  ///< nothing was enqueued, or the stream was slow to begin
  };
  Kind kind = Kind::work;
  size_t track = 0;                     ///< index into Trace::tracks
  int64_t begin_ns = 0, end_ns = 0;     ///< of the steady clock
  int64_t queued_ns = 0;                ///< when it was enqueued; of a thread: begin_ns
  std::array<int64_t, 5> idle_ns = {};  ///< of waiting and idle time: what it counts as, by Purpose
  std::string name = {}, range = {};    ///< "linear_forward", "backward layer 3"
  size_t bytes = 0;                     ///< that a copy moves
  uint64_t operation = 0;               ///< its number, of this device's; 0: a thread's own, idle
  uint64_t queued_by = 0;               ///< the task that enqueued it; 0: a host thread
  uint64_t awaited = 0;                 ///< of a wait: the last operation before the fence; 0: none
  std::string awaited_text = {};        ///< of a wait: the fence or promise, in words
};

struct Trace {
  std::vector<TraceTrack> tracks;
  std::vector<TraceEvent> events;  ///< those of one track in the order of time
};

}  // namespace tandem
