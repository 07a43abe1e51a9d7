#pragma once
#include <memory>

#include "gpu/cuda/checks.h"
#include "gpu/cuda/cuda_events.h"
#include "gpu/cuda/cuda_memory.h"
#include "gpu/cuda/lane_flags.h"
#include "gpu/host/device_memory.h"
#include "gpu/host/runtime.h"

namespace tandem::gpu::cuda {

/// What the parts of one CUDA device share. The host device's runtime runs the lanes and keeps promises and
/// the first failure.
struct CudaCore {
  CudaCore(int card, size_t memory_limit, size_t pin_chunk);

  const int card;
  const std::shared_ptr<Runtime> runtime;
  const std::shared_ptr<EventPool> events;
  const std::shared_ptr<LaneFlags> flags;
  /// What the lanes' queues ask for the kind of memory; the CUDA device's own answers come first, so this one
  /// knows none.
  const std::shared_ptr<DeviceMemory> unknown_memory;
  CudaMemory memory;

  /// Makes the card the calling thread's. CudaError.
  void enter() const;
  /// Calls of CUDA: on the card, after a check for a failure, and poisoning the device with their own.
  template <class Act>
  auto call(const Act& act) {
    runtime->check();
    try {
      enter();
      return act();
    } catch (const CudaError&) {
      runtime->fail(std::current_exception());
      runtime->check();  // throws the first failure, which may be another thread's
      throw;
    }
  }
};

}  // namespace tandem::gpu::cuda
