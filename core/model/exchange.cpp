#include "core/model/exchange.h"

namespace tandem {

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(source_, other.source_);
  std::swap(block_, other.block_);
  std::swap(pass_, other.pass_);
  std::swap(stream_, other.stream_);
  std::swap(weights_, other.weights_);
  return *this;
}

void Lease::release() {
  if (source_ != nullptr) std::exchange(source_, nullptr)->released(block_, pass_, *stream_);
}

Lease::~Lease() {
  try {
    release();
  } catch (...) {
    // The device is poisoned by now; its next user gets the failure.
  }
}

}  // namespace tandem
