#pragma once
#include "gpu/cuda_probe.h"

namespace tandem::gpu::cuda {

/// The driver and its cards. One of two files implements it: probe.cu where nvcc is, else probe_absent.cpp.
CudaProbe probe();

}  // namespace tandem::gpu::cuda
