#include "offload/signals.h"

#include <unistd.h>

#include <csignal>

namespace tandem {

namespace {

// A handler can reach nothing but this: the first signal's number, 0 before.
volatile std::sig_atomic_t first_signal = 0;

int status_of(int signal) { return 128 + signal; }

void on_signal(int signal) {
  if (first_signal != 0) _exit(status_of(static_cast<int>(first_signal)));
  first_signal = signal;
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
  return first_signal == 0 ? Status::ok : static_cast<Status>(status_of(static_cast<int>(first_signal)));
}

}  // namespace tandem
