#pragma once
// Work of the fake runtime's streams that is written for the host: kernels that NVIDIA's libraries have and
// this machine has not.
#include <functional>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "tests/cuda_fake/fake.h"

namespace tandem::cuda_fake {

/// The same bytes where they can be touched. They lie within a tensor that the work declared, else
/// InternalError.
using Open = std::function<Tensor(Tensor)>;

/// Enqueues work that reads and writes these tensors of device memory. What `body` throws is a fault.
cudaError_t launch_host_work(cudaStream_t stream, const std::string& name, const std::vector<Tensor>& reads,
                             const std::vector<Tensor>& writes, std::function<void(const Open&)> body);

}  // namespace tandem::cuda_fake
