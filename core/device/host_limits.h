#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace tandem {

/// What this process may still take of the machine's memory. An absent member is no limit.
struct HostLimits {
  std::optional<size_t> available_bytes;  ///< MemAvailable: free or reclaimable on the machine
  std::optional<size_t> cgroup_bytes;  ///< limit of the tightest control group (v1 or v2) above this process
  std::optional<size_t> cgroup_free_bytes;  ///< least of limit - used over these groups; page cache that can
                                            ///< go does not count as used
  std::optional<size_t> address_space_bytes;  ///< RLIMIT_AS (ulimit -v) less what is mapped
  std::optional<size_t> memlock_bytes;        ///< RLIMIT_MEMLOCK; bounds mlock and io_uring, not pinning

  /// The least of available and cgroup: memory that is really there. SIZE_MAX if nothing is known.
  [[nodiscard]] size_t resident_bytes() const;
  /// The least of available, cgroup and address space, the last divided by how often each byte is mapped;
  /// SIZE_MAX if nothing is known.
  [[nodiscard]] size_t usable_bytes(size_t mappings = 1) const;
};

/// Reads /proc and /sys below `root`; what can't be read is absent. Resource limits are this process's own.
HostLimits probe_host_limits(const std::string& root = "");

}  // namespace tandem
