#pragma once
#include <exception>

#include "core/device/device.h"

namespace tandem {

/// Runs body, unless the device has failed. What body throws poisons the device, so that no other thread goes
/// on waiting; thrown is what the device failed with first.
template <class Body>
auto guarded(Device& device, Body body) {
  try {
    device.check();
    return body();
  } catch (...) {
    device.fail(std::current_exception());
    device.check();
    throw;
  }
}

}  // namespace tandem
