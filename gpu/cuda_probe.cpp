#include "gpu/cuda_probe.h"

#include "gpu/cuda/probe.h"

namespace tandem::gpu {

CudaProbe probe_cuda() {
  CudaProbe probe = cuda::probe();
  if (probe.why.empty()) probe.why = "this version sees CUDA cards, but does not train on them";
  return probe;
}

}  // namespace tandem::gpu
