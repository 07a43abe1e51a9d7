#include <random>

#include "gpu/host/runtime.h"

namespace tandem::gpu {

namespace {

class ChaosRuntime final : public Runtime {
 public:
  explicit ChaosRuntime(uint64_t seed) : Runtime(true), random_(seed), eagerness_(random_() % 4) {}

 private:
  void appended(Lock& lock, WorkQueue&) override {
    assert_home();
    if (here_ != nullptr) return;  // a task enqueues: others don't run inside of it
    for (uint64_t runs = random_() % (eagerness_ + 1); runs > 0 && run_one(lock); --runs) {
    }
    throw_failure();
  }

  void block(Lock& lock, std::string_view what, const std::function<bool()>& done) override {
    assert_home();
    while (!failure_ && !done())
      if (!run_one(lock)) deadlock(lock, what);
    throw_failure();
  }

  void drain(Lock& lock, WorkQueue& queue) noexcept override {
    try {
      block(lock, "the end of " + describe_here(queue), [&] { return queue.operations.empty(); });
    } catch (...) {  // the device has failed: nothing is queued any more, and its waiters will hear why
    }
  }

  WorkQueue* running_here() override { return here_; }

  /// Runs one runnable head, any of them. False if there is none.
  bool run_one(Lock& lock) {
    std::vector<WorkQueue*> runnable;
    for (WorkQueue* queue : queues_)
      if (queue->runner->running == nullptr && queue->runnable()) runnable.push_back(queue);
    if (runnable.empty()) return false;
    WorkQueue* outer = here_;  // a task that blocks on a promise
    here_ = runnable[random_() % runnable.size()];
    run_head(lock, *here_);
    here_ = outer;
    return true;
  }

  void deadlock(Lock& lock, std::string_view what) {
    std::string text =
        fmt::format("deadlock: {} waits for {}, and nothing can run",
                    here_ != nullptr ? here_->describe(*here_->running) : "a host thread", what);
    for (const WorkQueue* queue : queues_) {
      const char* sort = queue->lane ? "lane" : "stream";
      if (queue->running != nullptr)
        text += fmt::format("\n  {} \"{}\" is in {}", sort, queue->name, queue->describe(*queue->running));
      if (!queue->operations.empty())
        text += fmt::format("\n  {} \"{}\" next: {}", sort, queue->name,
                            queue->describe(queue->operations.front()));
      else
        text += fmt::format("\n  {} \"{}\" is empty", sort, queue->name);
    }
    const auto failure = std::make_exception_ptr(DeadlockError(__FILE__, __LINE__, text));
    lock.unlock();
    fail(failure);
    lock.lock();
  }

  void assert_home() const {
    ASSERT(std::this_thread::get_id() == home_, "chaos mode serves the thread that opened the device alone");
  }

  const std::thread::id home_ = std::this_thread::get_id();
  std::mt19937_64 random_;
  const uint64_t eagerness_;  ///< at most so many operations run at an enqueue; 0: only while the host blocks
  WorkQueue* here_ = nullptr;
};

}  // namespace

std::shared_ptr<Runtime> make_chaos_runtime(uint64_t seed) { return std::make_shared<ChaosRuntime>(seed); }

}  // namespace tandem::gpu
