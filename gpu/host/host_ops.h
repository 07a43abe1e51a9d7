#pragma once
#include <memory>

#include "core/device/ops.h"
#include "gpu/host/kernel_queue.h"

namespace tandem::gpu {

/// The ops of the host device: checks shapes, then enqueues one kernel each. The queue must outlive it.
std::unique_ptr<Ops> make_host_ops(KernelQueue& queue);

}  // namespace tandem::gpu
