#pragma once
#include <cstddef>
#include <memory>

#include "core/device/ops.h"
#include "gpu/host/kernel_queue.h"
#include "gpu/host/kernels/row_kernels.h"

namespace tandem::gpu {

/// The ops of the host device: checks shapes, then enqueues one kernel each. The queue must outlive it; it
/// may end before its kernels have run. Error(failed) if the matrix library computes wrongly on this CPU.
std::unique_ptr<Ops> make_host_ops(KernelQueue& queue);
/// With one of row_kernels() instead of the fastest: tests.
std::unique_ptr<Ops> make_host_ops(KernelQueue& queue, const RowKernels& rows);

/// The same checks of shapes for a queue that runs no kernel: the matrix library is not tried out.
std::unique_ptr<Ops> make_untried_ops(KernelQueue& queue);

/// Host memory that the ops keep as scratch once warm, at most: one buffer per thread, as large as the
/// largest of a product's panels (none in fp32) and attention's scores for this length.
size_t host_scratch_bytes(int threads, DType act, int64_t length, int64_t head_dim);

}  // namespace tandem::gpu
