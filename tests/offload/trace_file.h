#pragma once
// trace.json as tests read it.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace tandem::testing {

struct TraceFile {
  struct Event {
    std::string name, category, track;
    double begin = 0, end = 0, queued = 0;  ///< microseconds
    uint64_t op = 0, by = 0, awaited = 0, bytes = 0;
    std::string reason, block;           ///< args.for; args.block
    std::map<std::string, double> idle;  ///< microseconds by cause
  };
  std::vector<Event> events;          ///< complete ones, in the order of the file
  std::map<std::string, int> arrows;  ///< of either phase, how many

  /// Checks with EXPECT what every reader relies on: names of tracks, times, ends of arrows.
  explicit TraceFile(const std::string& text);
  [[nodiscard]] std::vector<Event> of(const std::string& track) const;
  /// The span of the step (from 1) on the track of steps.
  [[nodiscard]] Event step(int64_t step) const;
  /// Milliseconds of the compute stream within a step, by the names of metrics.jsonl.
  [[nodiscard]] std::map<std::string, double> times(int64_t step) const;
  /// For each operation which work of the lane must have been done before it could begin, by any chain of
  /// waits, queues and enqueues.
  [[nodiscard]] std::map<uint64_t, std::set<std::string>> ancestors(const std::string& lane) const;
};

}  // namespace tandem::testing
