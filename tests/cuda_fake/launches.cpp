// What the host side of nvcc's code calls: kernels by name, and their launches.
#include <fmt/format.h>

#include <vector>

#include "tests/cuda_fake/state.h"

using namespace tandem::cuda_fake;  // NOLINT: the C interface of the runtime is global

namespace {

/// <<<grid, block, shared, stream>>>, from the push to the pop.
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {  // NOLINT: nvcc's name
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}                                                           // NOLINT
void __cudaUnregisterFatBinary(void**) {}                                                            // NOLINT
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,  // NOLINT
                            dim3*, dim3*, int*) {
  const Lock lock(state().mutex);
  state().kernels[host] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {  // NOLINT
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {  // NOLINT
  if (configurations.empty()) return cudaErrorInvalidConfiguration;
  const Configuration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {  // NOLINT
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,  // NOLINT
                               size_t shared, cudaStream_t stream) {
  FAKE_CALL(cudaLaunchKernel);
  const auto name = fake.kernels.find(kernel);
  if (name == fake.kernels.end()) return done(fault("a launch of what is no kernel"));
  if (!fake.bind) return done(fault("a launch of " + name->second + ": nobody runs kernels here"));
  if (shared != 0) return done(fault("a launch of " + name->second + " with dynamic shared memory"));
  BoundKernel bound = fake.bind(name->second, grid, block, arguments);
  if (!bound.run) return done(fault("a launch of " + name->second + ", which has no twin here"));
  return done(enqueue(stream, {.text = "kernel " + name->second,
                               .uses = std::move(bound.uses),
                               .run = std::move(bound.run),
                               .is_work = true}));
}

}  // extern "C"
