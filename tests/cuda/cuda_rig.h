#pragma once
// What the tests of the CUDA device share: the device on the fake runtime.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cuda/cuda_device.h"
#include "tests/cuda_fake/fake.h"
#include "tests/gpu/device_testing.h"

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

}  // namespace tandem::gpu::cuda
