#include "gpu/backend.h"

#include "gpu/cuda_probe.h"
#include "gpu/host/host_device.h"
#include "gpu/host/host_ops.h"
#include "gpu/null/null_device.h"

namespace tandem::gpu {

namespace {

std::unique_ptr<Device> open_host(const OpenOptions& options) {
  ASSERT(options.workers != nullptr, "the host device computes on workers, and none were given");
  return std::make_unique<HostDevice>(
      *options.workers, HostDeviceOptions{options.memory_limit, options.chaos_seed, options.check_order},
      [](KernelQueue& queue) { return make_host_ops(queue); });
}

}  // namespace

std::string why_absent(const std::string& kind) {
  if (kind == "host") return {};
  CHECK(kind == "cuda" || kind.starts_with("cuda:"), Status::usage,
        "unknown device \"" + printable(kind) + "\"", "device.kind",
        "\"auto\", \"cuda\", \"cuda:0\" or \"host\"");
  return probe_cuda().why;
}

std::string pci_bus_id(const std::string& kind) {
  if (kind == "host") return {};
  const std::vector<CudaCard> cards = probe_cuda().cards;
  for (size_t i = 0; i < cards.size(); ++i)
    if (kind == "cuda:" + std::to_string(i) || (i == 0 && kind == "cuda")) return cards[i].pci_bus_id;
  return {};
}

std::unique_ptr<Device> open(const std::string& kind, const OpenOptions& options) {
  if (kind == "null") {
    ASSERT(options.recording != nullptr, "the null device records, and no recording was given");
    return std::make_unique<NullDevice>(*options.recording);
  }
  const std::string why = why_absent(kind);
  CHECK(why.empty(), Status::usage, "device \"" + printable(kind) + "\" can't be used: " + why, "device.kind",
        "\"auto\" or \"host\"");
  ASSERT(kind == "host", "no device of kind {} is built in", kind);
  return open_host(options);
}

}  // namespace tandem::gpu
