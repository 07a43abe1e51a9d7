#include <cuda_runtime_api.h>

#include <string>

#include "gpu/cuda/probe.h"

namespace tandem::gpu::cuda {

namespace {

// fmt 9 doesn't compile under nvcc in C++20.
std::string dotted(int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); }

/// 13020 -> "13.2".
std::string version_text(int version) { return dotted(version / 1000, version % 1000 / 10); }

CudaCard describe(int index, const cudaDeviceProp& properties) {
  char bus_id[32] = "";
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index) != cudaSuccess) bus_id[0] = '\0';
  return {properties.name, properties.totalGlobalMem, dotted(properties.major, properties.minor), bus_id};
}

}  // namespace

CudaProbe probe() {
  CudaProbe probe;
  probe.runtime = version_text(CUDART_VERSION);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    probe.why = "no NVIDIA driver";
    return probe;
  }
  probe.driver = version_text(driver);
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    probe.why = counted == cudaSuccess || counted == cudaErrorNoDevice ? "the NVIDIA driver has no card"
                                                                       : cudaGetErrorString(counted);
    return probe;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    const cudaError_t got = cudaGetDeviceProperties(&properties, i);
    if (got != cudaSuccess) {
      probe.why = "cuda:" + std::to_string(i) + ": " + cudaGetErrorString(got);
      return probe;
    }
    probe.cards.push_back(describe(i, properties));
  }
  return probe;
}

}  // namespace tandem::gpu::cuda
