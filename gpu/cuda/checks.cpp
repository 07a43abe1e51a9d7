#include "gpu/cuda/checks.h"

#include <atomic>
#include <cstdio>

namespace tandem::gpu::cuda {

namespace {

/// What CUDA calls it, without its arguments: "cudaMemcpyAsync: cudaErrorInvalidValue (invalid argument)".
std::string text_of(cudaError_t status, std::string_view call) {
  return fmt::format("{}: {} ({})", call.substr(0, call.find('(')), cudaGetErrorName(status),
                     cudaGetErrorString(status));
}

/// The error that was named last. Those that stay with the card are the answer to every later call.
std::atomic<cudaError_t> named = cudaSuccess;

}  // namespace

CudaError::CudaError(cudaError_t status, const char* call, const std::string& where)
    : Error(Status::failed, text_of(status, call), where), code_(status) {
  named = status;
  (void)cudaGetLastError();  // else a later launch would seem to have failed
}

void log_failure(cudaError_t status, const char* call) noexcept {
  (void)cudaGetLastError();
  if (named.exchange(status) == status) return;
  try {
    std::fprintf(stderr, "warning: %s\n", text_of(status, call).c_str());
  } catch (...) {  // no memory for the text
  }
}

}  // namespace tandem::gpu::cuda
