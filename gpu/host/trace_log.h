#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/device/trace.h"
#include "gpu/host/work_queue.h"

namespace tandem::gpu {

/// A trace while it is kept: meters' slices, with the operations that they were counted for. All of it
/// belongs to the runtime's mutex.
class TraceLog {
 public:
  /// main: the host thread that is traced.
  explicit TraceLog(Actor main);
  [[nodiscard]] Actor main() const { return main_; }
  /// The queue's track; opened, and its meter's slices kept, by the first call.
  size_t track(WorkQueue& queue);
  /// What the queue's meter has counted since the operation before this one.
  void add(WorkQueue& queue, const Operation& operation);
  /// What the main thread did itself.
  void add_doing(const std::vector<Slice>& slices, const std::string& what);
  /// One wait of the main thread.
  void add_wait(const std::vector<Slice>& slices, Nanos begin, TraceEvent wait);
  [[nodiscard]] Trace take() { return std::move(trace_); }

 private:
  [[nodiscard]] std::vector<TraceEvent>& events() { return trace_.events; }
  const Actor main_;
  std::map<Actor, size_t> tracks_;
  Trace trace_;
};

}  // namespace tandem::gpu
