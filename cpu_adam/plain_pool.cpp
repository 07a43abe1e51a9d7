#include "cpu_adam/plain_pool.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace tandem {

namespace {

class PlainPool : public Workers {
 public:
  explicit PlainPool(int threads) : threads_(threads) {
    ASSERT(threads >= 1, "a pool of {} threads", threads);
    for (int id = 1; id < threads; ++id) helpers_.emplace_back([this, id] { help(id); });
  }
  ~PlainPool() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }
  [[nodiscard]] int count() const override { return threads_; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} threads, plain pool", threads_);
  }

  void run(int64_t tasks, const std::function<void(int64_t)>& task) override {
    if (tasks <= 0) return;
    const std::lock_guard turn(turn_);
    {
      const std::lock_guard lock(mutex_);
      task_ = &task;
      tasks_ = tasks;
      working_ = threads_ - 1;
      failure_ = nullptr;
      ++generation_;
    }
    wake_.notify_all();
    work(0, task, tasks);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return working_ == 0; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void help(int id) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ending_ || generation_ != seen; });
      if (ending_) return;
      seen = generation_;
      const auto* task = task_;
      const int64_t tasks = tasks_;
      lock.unlock();
      work(id, *task, tasks);
      lock.lock();
      if (--working_ == 0) done_.notify_one();
    }
  }

  void work(int id, const std::function<void(int64_t)>& task, int64_t tasks) {
    try {
      for (int64_t i = tasks * id / threads_; i < tasks * (id + 1) / threads_; ++i) task(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  const int threads_;
  std::mutex turn_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int64_t)>* task_ = nullptr;
  int64_t tasks_ = 0;
  int working_ = 0;
  uint64_t generation_ = 0;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace

std::unique_ptr<Workers> make_plain_pool(int threads) { return std::make_unique<PlainPool>(threads); }

}  // namespace tandem
