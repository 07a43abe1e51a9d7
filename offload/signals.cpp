#include "offload/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace tandem {

namespace {

// A handler can reach nothing but this: the first signal's number, 0 before. Two threads may take one signal
// each at the same moment.
std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may not wait");

int status_of(int signal) { return 128 + signal; }

void on_signal(int signal) {
  int first = 0;
  if (!first_signal.compare_exchange_strong(first, signal)) _exit(status_of(first));
}

}  // namespace

struct StopSignals::Saved {
  struct sigaction interrupt = {}, terminate = {}, file_size = {};
};

StopSignals::StopSignals() : saved_(std::make_unique<Saved>()) {
  first_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &saved_->interrupt);
  sigaction(SIGTERM, &action, &saved_->terminate);
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, &saved_->file_size);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &saved_->interrupt, nullptr);
  sigaction(SIGTERM, &saved_->terminate, nullptr);
  sigaction(SIGXFSZ, &saved_->file_size, nullptr);
}

Status StopSignals::asked() const {
  const int first = first_signal;
  return first == 0 ? Status::ok : static_cast<Status>(status_of(first));
}

}  // namespace tandem
