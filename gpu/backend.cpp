#include "gpu/backend.h"

#include "gpu/host/host_device.h"
#include "gpu/host/host_ops.h"

namespace tandem::gpu {

std::unique_ptr<Device> open(const std::string& kind, const OpenOptions& options) {
  CHECK(kind == "host", Status::usage, "unknown device \"" + printable(kind) + "\"", "device.kind", "\"host\"");
  ASSERT(options.workers != nullptr, "the host device needs workers");
  const HostDeviceOptions host{options.memory_limit, options.chaos_seed, options.check_order};
  return std::make_unique<HostDevice>(*options.workers, host, [](KernelQueue& queue) { return make_host_ops(queue); });
}

}  // namespace tandem::gpu
