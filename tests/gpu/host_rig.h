#pragma once
// What the tests of the host device share: a device without ops.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu_adam/plain_pool.h"
#include "gpu/host/host_device.h"
#include "tests/gpu/device_testing.h"

namespace tandem::gpu {

/// A host device with order checks: threads, or chaos with a seed and without any thread.
class Rig {
 public:
  explicit Rig(std::optional<uint64_t> seed = {}, size_t memory_limit = size_t{64} << 20)
      : workers_(make_plain_pool(seed ? 1 : 2)), device(*workers_, {memory_limit, seed, true}, {}) {}

 private:
  std::unique_ptr<Workers> workers_;

 public:
  HostDevice device;
};

/// A kernel that does nothing but claim its accesses.
inline Kernel claim(std::string name, std::vector<Tensor> reads, std::vector<Tensor> writes) {
  return {std::move(name), std::move(reads), std::move(writes), [](KernelContext&) {}};
}

/// y[i] += value, shared by the workers.
inline Kernel add_value(Tensor y, float value) {
  return {"add_value", {y}, {y}, [y, value](KernelContext& context) {
            const Tensor open = context.open(y);
            auto* values = open.data<float>();
            context.workers().ranges(open.numel(), 64, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) values[i] += value;
            });
          }};
}

}  // namespace tandem::gpu
