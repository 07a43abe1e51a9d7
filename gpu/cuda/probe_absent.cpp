#include "gpu/cuda/probe.h"

namespace tandem::gpu::cuda {

CudaProbe probe() {
  CudaProbe probe;
  probe.why = "built without CUDA";
  return probe;
}

}  // namespace tandem::gpu::cuda
