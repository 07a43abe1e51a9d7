#pragma once
// What tests of every device share: pinned host memory, and what was thrown.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace tandem::gpu {

/// Zero-filled pinned host memory.
template <class T>
class Pinned {
 public:
  Pinned(Device& device, size_t n)
      : values_(n), pin_(device.pin(std::as_writable_bytes(std::span(values_)))) {}
  [[nodiscard]] Tensor tensor() {
    return {values_.data(), DTypeOf<T>::value, {static_cast<int64_t>(values_.size())}};
  }
  [[nodiscard]] std::vector<T>& values() { return values_; }

 private:
  std::vector<T> values_;
  Pin pin_;
};

/// The message of the exception that `act` throws, which must be an E; empty (and a test failure) otherwise.
template <class E, class Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tandem::gpu
