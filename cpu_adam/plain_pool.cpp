#include "cpu_adam/plain_pool.h"

#include <system_error>

#include "core/base/error.h"
#include "cpu_adam/static_pool.h"

namespace tandem {

namespace {

class PlainPool : public StaticPool {
 public:
  PlainPool(int threads, std::string reason) : StaticPool(threads), reason_(std::move(reason)) {
    try {
      for (int k = 1; k < threads; ++k) helpers_.emplace_back([this, k] { help(k); });
    } catch (const std::system_error& error) {
      end();  // the helpers that did start must not outlive this
      throw Error(
          Status::failed,
          fmt::format("thread {} of {} can't be started: {}", helpers_.size() + 2, threads, error.what()),
          "device.threads", "fewer threads, or raise the limit (ulimit -u)");
    }
  }
  ~PlainPool() override { end(); }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} threads, plain pool{}{}", count(), reason_.empty() ? "" : ": ", reason_);
  }

 protected:
  void spread(const std::function<void(int)>& share) override {
    {
      const std::lock_guard lock(mutex_);
      share_ = &share;
      working_ = count() - 1;
      ++round_;
    }
    wake_.notify_all();
    share(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return working_ == 0; });
  }

 private:
  void help(int k) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ending_ || round_ != seen; });
      if (ending_) return;
      seen = round_;
      const auto& share = *share_;
      lock.unlock();
      share(k);
      lock.lock();
      if (--working_ == 0) done_.notify_one();
    }
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  const std::string reason_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* share_ = nullptr;  // of the current round
  uint64_t round_ = 0;
  int working_ = 0;
  bool ending_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace

std::unique_ptr<Workers> make_plain_pool(int threads, std::string reason) {
  return std::make_unique<PlainPool>(threads, std::move(reason));
}

}  // namespace tandem
