#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device/workers.h"

namespace tandem {

/// What the pools share: thread k of n runs the tasks [tasks*k/n, tasks*(k+1)/n), so ranges are static;
/// concurrent callers take turns, first come first served, a call whole; a call from inside a task is an
/// InternalError at once. A task that throws ends its thread's share; the other shares finish; the first
/// exception is rethrown.
class StaticPool : public Workers {
 public:
  explicit StaticPool(int threads);
  [[nodiscard]] int count() const final { return threads_; }
  void run(int64_t tasks, const std::function<void(int64_t)>& task) final;

 protected:
  /// Calls share(k) once for every k in [0, count()), on thread k where it can, and returns when all are
  /// done. share does not throw. One call at a time.
  virtual void spread(const std::function<void(int thread)>& share) = 0;

 private:
  class Turn;
  class Inside;
  const int threads_;
  std::mutex mutex_;
  std::condition_variable next_;
  uint64_t tickets_ = 0, serving_ = 0;   // FIFO: a std::mutex lets one caller in a loop starve the others
  std::vector<std::thread::id> inside_;  // the threads that are running tasks
};

}  // namespace tandem
