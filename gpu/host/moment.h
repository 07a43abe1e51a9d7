#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "core/device/device.h"
#include "gpu/host/clock.h"
#include "gpu/host/meter.h"

namespace tandem::gpu {

class Runtime;

/// What a fence of the host device points to: a place in one stream's queue. The runtime reads and writes
/// what is below under its mutex; passed() alone is free of it.
class Moment final : public FenceState {
 public:
  Moment(std::shared_ptr<Runtime> owner, Actor stream, std::string text, uint64_t after, Clock known)
      : owner(std::move(owner)),
        stream(stream),
        text(std::move(text)),
        after(after),
        clock(std::move(known)) {}
  [[nodiscard]] bool passed() const noexcept override { return has_passed.load(std::memory_order_acquire); }
  void wait() const override;

  const std::shared_ptr<Runtime> owner;
  const Actor stream;
  const std::string text;  ///< 'stream "d2h" (range "backward layer 3")', for messages
  const uint64_t after;    ///< the last operation before it; 0: none
  const Clock clock;       ///< all that has happened at the moment
  Passed when;             ///< set when it passes
  std::atomic<bool> has_passed = false;
};

}  // namespace tandem::gpu
