#include "gpu/host/runtime.h"

namespace tandem::gpu {

namespace {

class ThreadedRuntime final : public Runtime {
 public:
  using Runtime::Runtime;

 private:
  void started(Lock&, WorkQueue& queue) override {
    Runner& runner = *queue.runner;
    runner.queues.push_back(&queue);
    if (runner.thread.joinable()) return;
    runner.thread = std::thread([this, &runner] { serve(runner); });
    threads_[runner.thread.get_id()] = &runner;
  }
  void appended(Lock&, WorkQueue& queue) override { queue.runner->wake.notify_one(); }
  void unblocked(WorkQueue& queue) noexcept override {
    queue.runner->wake.notify_one();
    queue.runner->idle.notify_all();
  }
  void changed() noexcept override { changed_.notify_all(); }

  /// The last queue of a runner ends its thread.
  void drain(Lock& lock, WorkQueue& queue) noexcept override {
    Runner& runner = *queue.runner;
    runner.idle.wait(lock, [&] { return queue.operations.empty() && queue.running == nullptr; });
    std::erase(runner.queues, &queue);
    if (!runner.queues.empty()) return;
    runner.wake.notify_one();
    const std::thread::id id = runner.thread.get_id();
    lock.unlock();
    runner.thread.join();
    lock.lock();
    threads_.erase(id);
  }

  void block(Lock& lock, std::string_view, const std::function<bool()>& done) override {
    changed_.wait(lock, [&] { return failure_ || done(); });
    throw_failure();
  }

  WorkQueue* running_here() override {
    const auto runner = threads_.find(std::this_thread::get_id());
    return runner == threads_.end() ? nullptr : runner->second->running;
  }

  void serve(Runner& runner) {
    Lock lock(mutex_);
    for (WorkQueue* queue = nullptr;;) {
      runner.wake.wait(lock, [&] {
        queue = runner.next(queue);
        return queue != nullptr || runner.queues.empty();
      });
      if (queue == nullptr) return;
      run_head(lock, *queue);
      if (queue->operations.empty()) runner.idle.notify_all();
    }
  }

  std::map<std::thread::id, Runner*> threads_;
  std::condition_variable changed_;  ///< a moment passed, a promise was fulfilled, the device failed
};

}  // namespace

std::shared_ptr<Runtime> make_threaded_runtime(bool check_order) {
  return std::make_shared<ThreadedRuntime>(check_order);
}

}  // namespace tandem::gpu
