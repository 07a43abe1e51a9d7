#include "cpu_adam/static_pool.h"

#include <algorithm>
#include <exception>

#include "core/base/error.h"

namespace tandem {

/// One caller's turn.
class StaticPool::Turn {
 public:
  explicit Turn(StaticPool& pool) : pool_(pool) {
    std::unique_lock lock(pool.mutex_);
    const auto& inside = pool.inside_;
    ASSERT(std::find(inside.begin(), inside.end(), std::this_thread::get_id()) == inside.end(),
           "Workers::run called from inside a task of the same workers");
    const uint64_t ticket = pool.tickets_++;
    pool.next_.wait(lock, [&] { return pool.serving_ == ticket; });
  }
  ~Turn() {
    {
      const std::lock_guard lock(pool_.mutex_);
      ++pool_.serving_;
    }
    pool_.next_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  StaticPool& pool_;
};

/// Marks the calling thread as running tasks.
class StaticPool::Inside {
 public:
  explicit Inside(StaticPool& pool) : pool_(pool) {
    const std::lock_guard lock(pool_.mutex_);
    pool_.inside_.push_back(std::this_thread::get_id());
  }
  ~Inside() {
    const std::lock_guard lock(pool_.mutex_);
    auto& inside = pool_.inside_;
    inside.erase(std::find(inside.begin(), inside.end(), std::this_thread::get_id()));
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  StaticPool& pool_;
};

StaticPool::StaticPool(int threads) : threads_(threads) {
  ASSERT(threads >= 1, "a pool of {} threads", threads);
  inside_.reserve(static_cast<size_t>(threads));
}

void StaticPool::run(int64_t tasks, const std::function<void(int64_t)>& task) {
  const Turn turn(*this);
  if (tasks <= 0) return;
  std::mutex failure_mutex;
  std::exception_ptr failure;
  const auto share = [&](int64_t begin, int64_t end) {
    if (begin == end) return;
    const Inside inside(*this);
    try {
      for (int64_t i = begin; i < end; ++i) task(i);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  if (tasks == 1 || threads_ == 1) {
    share(0, tasks);  // nothing to spread: spare the wake-ups
  } else {
    spread([&](int k) { share(tasks * k / threads_, tasks * (k + 1) / threads_); });
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tandem
