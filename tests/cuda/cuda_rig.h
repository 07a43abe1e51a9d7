#pragma once
// What the tests of the CUDA device share: the device on the fake runtime, and pinned host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cuda/cuda_device.h"
#include "tests/cuda_fake/fake.h"

namespace tandem::gpu::cuda {

/// The fake begins anew before the device, and at the end nothing may be left and no fault unseen.
struct FakeSession {
  explicit FakeSession(const cuda_fake::Settings& settings) { cuda_fake::reset(settings); }
  ~FakeSession() {
    EXPECT_EQ(cuda_fake::live(), cuda_fake::Live{});
    for (const std::string& fault : cuda_fake::faults()) ADD_FAILURE() << fault;
  }
};

struct Rig {
  explicit Rig(uint64_t seed = 0, const CudaDeviceOptions& options = {}, const CudaOpsFactory& make_ops = {})
      : session({.seed = seed}), device(options, make_ops) {}
  FakeSession session;
  CudaDevice device;
};

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

}  // namespace tandem::gpu::cuda
