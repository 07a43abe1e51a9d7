#include "core/device/host_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

/// A small /proc and /sys.
class Machine {
 public:
  explicit Machine(const std::string& name)
      : root_(std::filesystem::path(testing::TempDir()) / ("host_limits_" + name)) {
    std::filesystem::remove_all(root_);
    put("/proc/meminfo", "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   4000 kB\n");
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] HostLimits probe() const { return probe_host_limits(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST(MemoryLimits, WithoutGroupsWhatIsAvailableHolds) {
  Machine machine("plain");
  machine.put("/proc/self/cgroup", "0::/user.slice\n");
  const HostLimits limits = machine.probe();
  EXPECT_EQ(limits.available_bytes, 4000u * 1024);
  EXPECT_FALSE(limits.cgroup_bytes);
  EXPECT_FALSE(limits.cgroup_free_bytes);
}

TEST(MemoryLimits, OfVersionTwoTheTightestGroupAboveCounts) {
  Machine machine("v2");
  machine.put("/proc/self/cgroup", "0::/user.slice/job\n");
  machine.put("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  machine.put("/sys/fs/cgroup/user.slice/memory.max", "1000000\n");
  machine.put("/sys/fs/cgroup/user.slice/memory.current", "700000\n");
  machine.put("/sys/fs/cgroup/user.slice/memory.stat", "anon 400000\nfile 300000\ninactive_file 200000\n");
  machine.put("/sys/fs/cgroup/memory.max", "3000000\n");
  machine.put("/sys/fs/cgroup/memory.current", "2900000\n");
  const HostLimits limits = machine.probe();
  EXPECT_EQ(limits.cgroup_bytes, 1000000u);
  EXPECT_EQ(limits.cgroup_free_bytes, 100000u);  // the root's rest is less than 1000000 - (700000 - 200000)
  EXPECT_EQ(limits.usable_bytes(), 100000u);
}

TEST(MemoryLimits, OfVersionOneTheMountIsReadWhereThePathIsNotThere) {
  Machine machine("v1");
  machine.put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n");
  machine.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  machine.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2500000\n");
  machine.put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 100000\n");
  const HostLimits limits = machine.probe();
  EXPECT_EQ(limits.cgroup_bytes, 2000000u);
  EXPECT_EQ(limits.cgroup_free_bytes, 0u);  // over its limit for a moment: nothing left, no wrap-around
}

TEST(MemoryLimits, VersionOnesHugeNumberIsNoLimit) {
  Machine machine("v1_unlimited");
  machine.put("/proc/self/cgroup", "4:memory:/\n");
  machine.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(machine.probe().cgroup_bytes);
}

TEST(MemoryLimits, UnreadableFilesAreAbsentNotZero) {
  const HostLimits limits = probe_host_limits("/nonexistent");
  EXPECT_FALSE(limits.available_bytes);
  EXPECT_FALSE(limits.cgroup_bytes);
}

TEST(MemoryLimits, AddressSpaceIsSharedByAllMappingsOfAByte) {
  HostLimits limits;
  EXPECT_EQ(limits.usable_bytes(), SIZE_MAX);
  limits.available_bytes = 1000;
  limits.address_space_bytes = 1200;
  EXPECT_EQ(limits.usable_bytes(1), 1000u);
  EXPECT_EQ(limits.usable_bytes(2), 600u);
}

TEST(MemoryLimits, ThisMachineHasMemory) {
  const HostLimits limits = probe_host_limits();
  ASSERT_TRUE(limits.available_bytes);
  EXPECT_GT(*limits.available_bytes, size_t{1} << 20);
  EXPECT_LE(limits.usable_bytes(), *limits.available_bytes);
}

}  // namespace
}  // namespace tandem
