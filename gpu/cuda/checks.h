#pragma once
// What every call of the CUDA runtime goes through: one check that throws and one that logs.
#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "core/base/error.h"

namespace tandem::gpu::cuda {

/// A call of the CUDA runtime failed. Names the call and what CUDA says of it; the runtime's memory of it is
/// cleared.
class CudaError : public Error {
 public:
  CudaError(cudaError_t status, const char* call, const std::string& where);
  [[nodiscard]] cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

/// For destructors: one line on stderr, unless the same error was named just before.
void log_failure(cudaError_t status, const char* call) noexcept;

}  // namespace tandem::gpu::cuda

/// CUDA_CHECK(call, where): CudaError unless the call succeeds; `where` is evaluated only then.
#define CUDA_CHECK(call, where)                                                   \
  do {                                                                            \
    if (const cudaError_t status_of_call = (call); status_of_call != cudaSuccess) \
      throw ::tandem::gpu::cuda::CudaError(status_of_call, #call, (where));       \
  } while (false)

/// CUDA_LOG(call): the same where nothing may be thrown.
#define CUDA_LOG(call)                                                            \
  do {                                                                            \
    if (const cudaError_t status_of_call = (call); status_of_call != cudaSuccess) \
      ::tandem::gpu::cuda::log_failure(status_of_call, #call);                    \
  } while (false)
