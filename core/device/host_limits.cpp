#include "core/device/host_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string_view>

namespace tandem {

namespace {

constexpr size_t kHugeLimit = size_t{1} << 62;  // v1 writes "no limit" as a number near 2^63

std::optional<size_t> number(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc{}) return {};
  return value;
}

/// The number in a file that holds nothing else; "max" is no number.
std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? number(line) : std::nullopt;
}

/// The number behind "key" at the start of a line.
std::optional<size_t> field_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return number(std::string_view(line).substr(key.size()));
  return {};
}

void keep_least(std::optional<size_t>& least, std::optional<size_t> value) {
  if (value && (!least || *value < *least)) least = value;
}

/// The names of one generation of control groups.
struct Generation {
  const char* mount;
  const char* limit;
  const char* used;
  const char* cache;
};
constexpr Generation kVersion1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                               "total_inactive_file "};
constexpr Generation kVersion2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file "};

/// Every group from `group` up to the mount: each may be the tightest. Inside a container the path may not
/// exist, but the mount does.
void probe_groups(const std::string& root, const Generation& names, std::string group, HostLimits& limits) {
  while (true) {
    const std::string folder = root + names.mount + (group == "/" ? "" : group);
    const auto limit = number_in(folder + names.limit);
    if (limit && *limit < kHugeLimit) {
      keep_least(limits.cgroup_bytes, limit);
      const size_t cache = field_in(folder + "/memory.stat", names.cache).value_or(0);
      const size_t used = number_in(folder + names.used).value_or(0);
      const size_t held = used - std::min(cache, used);
      keep_least(limits.cgroup_free_bytes, *limit - std::min(held, *limit));
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

void probe_cgroups(const std::string& root, HostLimits& limits) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (controllers == ",,") probe_groups(root, kVersion2, group, limits);
    if (controllers.find(",memory,") != std::string::npos) probe_groups(root, kVersion1, group, limits);
  }
}

std::optional<size_t> resource_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return static_cast<size_t>(limit.rlim_cur);
}

}  // namespace

size_t HostLimits::resident_bytes() const {
  size_t usable = std::numeric_limits<size_t>::max();
  if (available_bytes) usable = std::min(usable, *available_bytes);
  if (cgroup_free_bytes) usable = std::min(usable, *cgroup_free_bytes);
  return usable;
}

size_t HostLimits::usable_bytes(size_t mappings) const {
  size_t usable = resident_bytes();
  if (address_space_bytes) usable = std::min(usable, *address_space_bytes / mappings);
  return usable;
}

HostLimits probe_host_limits(const std::string& root) {
  HostLimits limits;
  if (const auto kib = field_in(root + "/proc/meminfo", "MemAvailable:"))
    limits.available_bytes = *kib * 1024;
  probe_cgroups(root, limits);
  limits.address_space_bytes = resource_limit(RLIMIT_AS);
  if (limits.address_space_bytes) {
    const size_t mapped = field_in(root + "/proc/self/status", "VmSize:").value_or(0) * 1024;
    *limits.address_space_bytes -= std::min(mapped, *limits.address_space_bytes);
  }
  limits.memlock_bytes = resource_limit(RLIMIT_MEMLOCK);
  return limits;
}

}  // namespace tandem
