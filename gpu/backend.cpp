#include "gpu/backend.h"

#include "gpu/host/host_device.h"
#include "gpu/host/host_ops.h"

namespace tandem::gpu {

namespace {

std::unique_ptr<Device> open_host(const OpenOptions& options) {
  ASSERT(options.workers != nullptr, "the host device computes on workers, and none were given");
  return std::make_unique<HostDevice>(
      *options.workers, HostDeviceOptions{options.memory_limit, options.chaos_seed, options.check_order},
      [](KernelQueue& queue) { return make_host_ops(queue); });
}

}  // namespace

std::unique_ptr<Device> open(const std::string& kind, const OpenOptions& options) {
  if (kind == "host") return open_host(options);
  CHECK(kind != "cuda" && !kind.starts_with("cuda:"), Status::usage,
        "device \"" + printable(kind) + "\" is not there: this build has no CUDA device", "device.kind",
        "\"host\"");
  throw Error(Status::usage, "unknown device \"" + printable(kind) + "\"", "device.kind", "\"host\"");
}

}  // namespace tandem::gpu
