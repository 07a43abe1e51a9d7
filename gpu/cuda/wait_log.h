#pragma once
#include <array>
#include <cstdint>
#include <deque>

#include "core/device/trace.h"
#include "gpu/cuda/cuda_events.h"

namespace tandem::gpu::cuda {

/// The waits of one CUDA stream: an event before and one after each, and who was awaited. Not thread-safe.
class WaitLog {
 public:
  void add(EventRef before, EventRef after, Purpose awaited);
  /// Waits so far.
  [[nodiscard]] uint64_t count() const { return base_ + waits_.size(); }
  /// Milliseconds spent in the waits [begin, end), which have all passed, by who was awaited. The last 65536
  /// waits are known.
  [[nodiscard]] std::array<double, 5> idle_ms(uint64_t begin, uint64_t end);

 private:
  struct Wait {
    EventRef before, after;  ///< null once measured
    Purpose awaited;
    double ms = 0;
  };
  /// Gives back the events of waits that have passed, from the oldest on.
  void measure();
  std::deque<Wait> waits_;
  uint64_t base_ = 0;      ///< number of the first one kept
  uint64_t measured_ = 0;  ///< all before this one are
};

}  // namespace tandem::gpu::cuda
