#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace tandem {

/// The compute threads of this process: static parallel ranges. Implemented by cpu_adam, injected into
/// devices and data loading; nobody else creates compute threads. Safe to call from several threads; calls
/// from inside a task are errors. What is computed must not depend on the number of workers: ranges follow
/// from the arguments alone.
class Workers {
 public:
  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  virtual ~Workers() = default;

  /// Number of threads that may run at once, the caller's included.
  [[nodiscard]] virtual int count() const = 0;
  /// NUMA nodes that the threads are bound to, successive threads to one node; 1 where they aren't bound.
  [[nodiscard]] virtual int nodes() const { return 1; }
  /// One line for the banner: threads, pool, NUMA map, and why.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Runs task(i) for every i in [0, tasks), each exactly once, and returns when all are done. Which thread
  /// runs which task is static where it can be (so that first-touched memory stays local). The first
  /// exception is rethrown here.
  virtual void run(int64_t tasks, const std::function<void(int64_t task)>& task) = 0;

  /// body(begin, end) over [0, n) cut at multiples of grain. The cuts depend on n and grain alone.
  void ranges(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body) {
    const int64_t tasks = (n + grain - 1) / grain;
    run(tasks, [&](int64_t i) {
      const int64_t begin = i * grain;
      body(begin, begin + grain < n ? begin + grain : n);
    });
  }
};

}  // namespace tandem
