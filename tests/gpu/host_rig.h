#pragma once
// What the tests of the host device share: a device without ops, and pinned host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu_adam/plain_pool.h"
#include "gpu/host/host_device.h"

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
