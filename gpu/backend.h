#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "core/device/workers.h"

namespace tandem::gpu {

class Recording;

/// How a device is opened.
struct OpenOptions {
  Workers* workers = nullptr;          ///< compute threads; required by "host"; outlives the device
  size_t memory_limit = 0;             ///< bytes of device memory that may be allocated; 0 = what is free
  std::optional<uint64_t> chaos_seed;  ///< host: a seeded scheduler instead of threads, poisoned scratch
  bool check_order = false;        ///< host: vector clocks over every declared access (tests; on with chaos)
  Recording* recording = nullptr;  ///< null: what is asked of it goes here; required; outlives the device
};

/// Why there is no device of this kind ("host", "cuda", "cuda:N") to open here; empty if there is one.
/// Error(usage) for an unknown kind.
std::string why_absent(const std::string& kind);

/// Where the card of that kind is ("0000:01:00.0"); empty for "host" and for a card that isn't there.
std::string pci_bus_id(const std::string& kind);

/// "host", or "cuda:N" (later); and "null" (gpu/null/null_device.h), which no config may name. Error(usage)
/// for an unknown kind and for one that is not there, with the reason.
std::unique_ptr<Device> open(const std::string& kind, const OpenOptions& options);

}  // namespace tandem::gpu
