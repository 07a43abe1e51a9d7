#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/io/json.h"
#include "tests/cli/program.h"

namespace tandem {
namespace {

json::Document doctor(const std::function<void()>& prelude = [] {}) {
  const Ran ran = run_tandem({"doctor", "--json"}, prelude);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  return json::parse(ran.out, "doctor");
}

std::vector<std::string> keys(const json::Node& node) {
  std::vector<std::string> names;
  for (const auto& [key, value] : node.members()) names.emplace_back(key);
  return names;
}

using Names = std::vector<std::string>;

TEST(ConfigDoctor, PrintsTheDocumentedObject) {
  const json::Document document = doctor();
  const json::Node root(document);
  EXPECT_EQ(keys(root), (Names{"devices", "cpu", "limits"}));
  EXPECT_EQ(keys(root.at("cpu")), (Names{"isa", "physical_cores", "allowed_cpus", "numa_nodes"}));
  EXPECT_EQ(keys(root.at("limits")),
            (Names{"cgroup_bytes", "available_bytes", "pinnable_bytes", "memlock_bytes", "disk_free_bytes"}));
  bool host = false, cuda = false;
  for (const json::Node& device : root.at("devices").items()) {
    EXPECT_EQ(keys(device),
              (Names{"name", "kind", "usable", "why", "memory_bytes", "compute_capability", "driver"}));
    EXPECT_NE(device.at("why").as_string(), "");
    cuda = cuda || device.at("kind").as_string() == "cuda";
    if (device.at("name").as_string() != "host") continue;
    host = true;
    EXPECT_TRUE(device.at("usable").as_bool());
    EXPECT_GT(device.at("memory_bytes").as_u64(), 0u);
  }
  EXPECT_TRUE(host);
  EXPECT_TRUE(cuda) << "an absent card is told, too";
}

TEST(ConfigDoctor, AgreesWithTheKernelAboutThisProcess) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  struct statvfs disk;
  ASSERT_EQ(statvfs(".", &disk), 0);
  const json::Document document = doctor([] {
    const rlimit limit{65536, 65536};
    setrlimit(RLIMIT_MEMLOCK, &limit);
  });
  const json::Node root(document);
  EXPECT_EQ(root.at("cpu").at("allowed_cpus").as_i64(), CPU_COUNT(&allowed));
  EXPECT_EQ(root.at("limits").at("memlock_bytes").as_u64(), 65536u);
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  EXPECT_NEAR(root.at("limits").at("disk_free_bytes").as_double(), free, 1e9);  // others write meanwhile
}

TEST(ConfigDoctor, FollowsTheAffinityMask) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) last = cpu;
  const json::Document document = doctor([last] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    sched_setaffinity(0, sizeof one, &one);
  });
  EXPECT_EQ(json::Node(document).at("cpu").at("allowed_cpus").as_i64(), 1);
}

TEST(ConfigDoctor, CountsTheNodesOfASyntheticMachine) {
  const json::Document document = doctor([] { setenv("HWLOC_SYNTHETIC", "node:3 core:2 pu:1", 1); });
  const json::Node cpu = json::Node(document).at("cpu");
  EXPECT_EQ(cpu.at("numa_nodes").as_i64(), 3);
  EXPECT_EQ(cpu.at("physical_cores").as_i64(), 6);
}

/// What doctor tells people after such a prelude, without hwloc's own complaints.
void expect_tells(const std::vector<std::string>& parts, const std::function<void()>& prelude) {
  const Ran ran = run_tandem({"doctor"}, prelude);
  EXPECT_EQ(ran.status, 0);
  for (const std::string& part : parts) EXPECT_NE(ran.out.find(part), std::string::npos) << part << ran.out;
}

TEST(ConfigDoctor, MapsThreadsToNodes) {
  expect_tells({"threads         4: 4 of 4 physical cores allowed (8 cpus)\n",
                "numa            node 0: 2 of 4 threads, 2 cores; node 1: 2 of 4 threads, 2 cores\n"},
               [] { setenv("HWLOC_SYNTHETIC", "node:2 core:2 pu:2", 1); });
  expect_tells({"node 0: 3 of 12 threads", "node 1: 3 of 12", "node 2: 3 of 12", "node 3: 3 of 12"},
               [] { setenv("HWLOC_SYNTHETIC", "node:4 core:3 pu:1", 1); });
}

TEST(ConfigDoctor, SaysThatHwlocFindsNothing) {
  expect_tells({"numa            hwloc finds nothing here: taken to be one node\n"}, [] {
    setenv("HWLOC_COMPONENTS", "xml,stop", 1);
    setenv("HWLOC_XMLFILE", "/nonexistent.xml", 1);
  });
}

TEST(ConfigDoctor, NamesAnOmpNumThreadsThatItDoesntObey) {
  expect_tells({"threads         4: ", "; OMP_NUM_THREADS=1 is not obeyed\n"}, [] {
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("HWLOC_SYNTHETIC", "node:2 core:2 pu:1", 1);
  });
}

/// The flags that the kernel lists for the first processor; none on an architecture that has no such line.
Names kernel_flags() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(ConfigDoctor, ListsTheInstructionSetsThatTheKernelLists) {
  const json::Document document = doctor();
  Names listed;
  for (const json::Node& isa : json::Node(document).at("cpu").at("isa").items())
    listed.push_back(isa.as_string());
  ASSERT_FALSE(listed.empty());
  EXPECT_EQ(listed.front(), "scalar");
  const Names flags = kernel_flags();
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const auto has = [](const Names& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_EQ(has(listed, "avx2"), has(flags, "avx2") && has(flags, "fma") && has(flags, "f16c"));
}

TEST(ConfigDoctor, TellsPeopleWhatAutoWouldTake) {
  const Ran ran = run_tandem({"doctor", "--quiet"});
  EXPECT_EQ(ran.status, 0);
  for (const char* part : {"devices\n", "\n  auto ", "host\n", "\ncpu\n", "\nlimits\n", "GiB"})
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << "\n" << ran.out;
}

}  // namespace
}  // namespace tandem
