#include "gpu/cuda/cuda_core.h"

namespace tandem::gpu::cuda {

CudaCore::CudaCore(int card, size_t memory_limit, size_t pin_chunk)
    : card(card),
      runtime(make_threaded_runtime(false)),
      events(std::make_shared<EventPool>()),
      flags(std::make_shared<LaneFlags>()),
      unknown_memory(std::make_shared<DeviceMemory>(0)),
      memory(memory_limit, pin_chunk) {
  runtime->at_failure([flags = flags] { flags->release_all(); });
}

void CudaCore::enter() const { CUDA_CHECK(cudaSetDevice(card), ""); }

}  // namespace tandem::gpu::cuda
