#include "gpu/host/runtime.h"

namespace tandem::gpu {

namespace {

class ThreadedRuntime final : public Runtime {
 public:
  using Runtime::Runtime;

 private:
  void started(Lock&, WorkQueue& queue) override {
    queue.thread = std::thread([this, &queue] { serve(queue); });
    threads_[queue.thread.get_id()] = &queue;
  }
  void appended(Lock&, WorkQueue& queue) override { queue.wake.notify_one(); }
  void unblocked(WorkQueue& queue) noexcept override { queue.wake.notify_one(); }
  void changed() noexcept override { changed_.notify_all(); }

  void drain(Lock& lock, WorkQueue& queue) noexcept override {
    queue.closing = true;
    queue.wake.notify_one();
    const std::thread::id id = queue.thread.get_id();
    lock.unlock();
    queue.thread.join();
    lock.lock();
    threads_.erase(id);
  }

  void block(Lock& lock, std::string_view, const std::function<bool()>& done) override {
    changed_.wait(lock, [&] { return failure_ || done(); });
    throw_failure();
  }

  WorkQueue* running_here() override {
    const auto queue = threads_.find(std::this_thread::get_id());
    return queue == threads_.end() ? nullptr : queue->second;
  }

  void serve(WorkQueue& queue) {
    Lock lock(mutex_);
    while (true) {
      queue.wake.wait(lock, [&] { return queue.runnable() || (queue.closing && queue.operations.empty()); });
      if (queue.operations.empty()) return;
      run_head(lock, queue);
    }
  }

  std::map<std::thread::id, WorkQueue*> threads_;
  std::condition_variable changed_;  ///< a moment passed, a promise was fulfilled, the device failed
};

}  // namespace

std::shared_ptr<Runtime> make_threaded_runtime(bool check_order) {
  return std::make_shared<ThreadedRuntime>(check_order);
}

}  // namespace tandem::gpu
