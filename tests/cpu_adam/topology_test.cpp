#include "cpu_adam/topology.h"

#include <gtest/gtest.h>

#include "fake_machine.h"

namespace tandem {
namespace {

TEST(ConfigThreads, CountPhysicalCoresNotHyperthreads) {
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "numa:1 core:4 pu:2");
  const FakeCgroups none;
  const Topology found = discover_topology(none.sources());
  EXPECT_TRUE(found.hwloc_found);
  EXPECT_EQ(found.physical_cores, 4);
  EXPECT_EQ(found.allowed_cores, 4);
  EXPECT_EQ(found.allowed_cpus.size(), 8u);
  EXPECT_EQ(found.threads, 4);
  EXPECT_EQ(found.reason, "4 of 4 physical cores allowed (8 cpus)");
}

TEST(ConfigThreads, FollowTheAffinityMask) {
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "numa:2 core:4 pu:2");
  const FakeCgroups none;
  TopologySources sources = none.sources();
  sources.affinity = {1, 2, 3, 8};  // both threads of core 1, one of core 0, one of core 4 on node 1
  const Topology found = discover_topology(sources);
  EXPECT_EQ(found.physical_cores, 8);
  EXPECT_EQ(found.allowed_cores, 3);
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].cores, 2);
  EXPECT_EQ(found.nodes[1].cores, 1);
  sources.affinity = {9};  // the other node has no core left
  const Topology one = discover_topology(sources);
  ASSERT_EQ(one.nodes.size(), 1u);
  EXPECT_EQ(one.nodes[0].os_index, 1);
  EXPECT_EQ(one.threads, 1);
}

TEST(ConfigThreads, KnowSeveralNodes) {
  const FakeCgroups none;
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "numa:4 core:3 pu:1");
  const Topology found = discover_topology(none.sources());
  ASSERT_EQ(found.nodes.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(found.nodes[static_cast<size_t>(i)].os_index, i);
    EXPECT_EQ(found.nodes[static_cast<size_t>(i)].cores, 3);
  }
  EXPECT_EQ(found.threads, 12);
}

TEST(ConfigThreads, OfUnevenNodesFollowTheirCores) {
  const FakeCgroups none;
  const FakeMachine machine({{0, {0, 1, 2, 3, 4, 5}}, {1, {6}}, {2, {7, 8}}});
  const Topology found = discover_topology(none.sources());
  ASSERT_EQ(found.nodes.size(), 3u);
  EXPECT_EQ(found.threads, 9);
  EXPECT_EQ(threads_per_node(found, 9), (std::vector<int>{6, 1, 2}));
  EXPECT_EQ(
      node_map(found, 9),
      "node 0: 6 of 9 threads, 6 cores; node 1: 1 of 9 threads, 1 cores; node 2: 2 of 9 threads, 2 cores");
}

/// Memory beside the processors (CXL, a card's) is near to all of them for hwloc, here with the lowest index.
TEST(ConfigThreads, NodesOfMemoryAloneGetNone) {
  const FakeCgroups none;
  const FakeMachine machine({{0, {}}, {1, {0, 1, 2, 3}}, {2, {4, 5}}, {3, {}}});
  const Topology found = discover_topology(none.sources());
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].os_index, 1);
  EXPECT_EQ(found.nodes[0].cores, 4);
  EXPECT_EQ(found.nodes[1].os_index, 2);
  EXPECT_EQ(found.nodes[1].cores, 2);
}

TEST(ConfigThreads, OfTwoKindsOfMemoryTheFirstIsTheirNode) {
  const FakeCgroups none;
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "pack:2 [numa] [numa(memory=1GB)] core:2 pu:1");
  const Topology found = discover_topology(none.sources());
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].os_index, 0);
  EXPECT_EQ(found.nodes[1].os_index, 2);
  EXPECT_EQ(found.threads, 4);
}

TEST(ConfigThreads, LeaveOutCpusThatAreOffline) {
  const FakeCgroups none;
  const FakeMachine machine({{0, {0, 1}, {2, 3}}, {1, {4, 5, 6}, {7}}});
  const Topology found = discover_topology(none.sources());
  EXPECT_EQ(found.allowed_cpus, (std::vector<int>{0, 1, 4, 5, 6}));
  EXPECT_EQ(found.threads, 5);
  EXPECT_EQ(threads_per_node(found, found.threads), (std::vector<int>{2, 3}));
}

TEST(ConfigThreads, ObeyMaskAndQuotaTogether) {
  const FakeMachine machine({{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}});
  const FakeCgroups cgroups;
  cgroups.write("self", "0::/job\n");
  cgroups.write("job/cpu.max", "300000 100000\n");
  TopologySources sources = cgroups.sources();
  sources.affinity = {2, 3, 4, 5, 6, 7};
  const Topology found = discover_topology(sources);
  EXPECT_EQ(found.allowed_cores, 6);
  EXPECT_EQ(found.threads, 3);
  EXPECT_EQ(threads_per_node(found, found.threads), (std::vector<int>{1, 2}));
}

TEST(ConfigThreads, AreSharedOutByCores) {
  Topology uneven;
  uneven.nodes = {{0, 6}, {1, 2}};
  EXPECT_EQ(threads_per_node(uneven, 8), (std::vector<int>{6, 2}));
  EXPECT_EQ(threads_per_node(uneven, 4), (std::vector<int>{3, 1}));
  EXPECT_EQ(threads_per_node(uneven, 16), (std::vector<int>{12, 4}));
  for (int threads = 1; threads < 20; ++threads) {
    const auto shares = threads_per_node(uneven, threads);
    EXPECT_EQ(shares[0] + shares[1], threads);
  }
}

TEST(ConfigThreads, ObeyAQuota) {
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "numa:1 core:8 pu:1");
  const FakeCgroups cgroups;
  cgroups.write("self", "0::/job\n");
  cgroups.write("job/cpu.max", "350000 100000\n");
  const Topology found = discover_topology(cgroups.sources());
  EXPECT_EQ(found.threads, 3);
  EXPECT_EQ(found.reason, "8 of 8 physical cores allowed (8 cpus), cgroup quota 3.50 cpus (" +
                              cgroups.path("job/cpu.max") + ")");
  cgroups.write("job/cpu.max", "20000 100000\n");  // a fifth of a cpu still runs one thread
  EXPECT_EQ(discover_topology(cgroups.sources()).threads, 1);
  cgroups.write("job/cpu.max", "6400000 100000\n");  // more than there is
  EXPECT_EQ(discover_topology(cgroups.sources()).threads, 8);
}

TEST(ConfigThreads, TheTightestQuotaOfAllParentsCounts) {
  const FakeCgroups cgroups;
  cgroups.write("self", "0::/a/b/c\n");
  EXPECT_EQ(cgroups.quota().cpus, 0);
  cgroups.write("a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroups.quota().cpus, 0);
  cgroups.write("a/cpu.max", "150000 50000\n");
  EXPECT_EQ(cgroups.quota().cpus, 3);
  cgroups.write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroups.quota().cpus, 3);
  EXPECT_EQ(cgroups.quota().file, cgroups.path("a/cpu.max"));
}

TEST(ConfigThreads, ReadQuotasOfVersion1) {
  const FakeCgroups cgroups;
  cgroups.write("self", "7:memory:/box\n4:cpu,cpuacct:/box\n3:cpuset:/other\n0::/\n");
  cgroups.write("cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  cgroups.write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroups.quota().cpus, 0);
  cgroups.write("cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cgroups.quota().cpus, 2.5);
  // A container that doesn't see its own folder still sees its root.
  cgroups.write("self", "4:cpu:/not/here\n");
  cgroups.write("cpu/cpu.cfs_quota_us", "100000\n");
  cgroups.write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroups.quota().cpus, 1);
}

TEST(ConfigThreads, NonsenseInQuotaFilesIsNoQuota) {
  const FakeCgroups cgroups;
  cgroups.write("self", "broken\n0:\n0::/x\n");
  for (const char* text : {"", "max", "a b", "1000", "0 100000", "100000 0", "-5 100000"}) {
    cgroups.write("x/cpu.max", text);
    EXPECT_EQ(cgroups.quota().cpus, 0) << text;
  }
}

TEST(ConfigThreads, MentionOmpNumThreadsOnlyIfSet) {
  const FakeCgroups none;
  TopologySources sources = none.sources();
  EXPECT_EQ(discover_topology(sources).reason.find("OMP"), std::string::npos);
  sources.omp_num_threads = "1";
  const Topology found = discover_topology(sources);
  EXPECT_NE(found.reason.find("OMP_NUM_THREADS=1 is not obeyed"), std::string::npos) << found.reason;
  sources.omp_num_threads.reset();
  EXPECT_EQ(found.threads, discover_topology(sources).threads);
  const WithEnvironment omp("OMP_NUM_THREADS", "3");
  EXPECT_EQ(TopologySources::of_process().omp_num_threads, "3");
}

TEST(ConfigThreads, WithoutHwlocEveryCpuIsACore) {
  const FakeCgroups none;
  const WithEnvironment only_xml("HWLOC_COMPONENTS", "xml,stop");
  const WithEnvironment no_such_file("HWLOC_XMLFILE", "/nonexistent.xml");
  TopologySources sources = none.sources();
  sources.affinity = {0, 1, 5};
  const Topology found = discover_topology(sources);
  EXPECT_FALSE(found.hwloc_found);
  EXPECT_EQ(found.threads, 3);
  ASSERT_EQ(found.nodes.size(), 1u);
  EXPECT_EQ(found.nodes[0].cores, 3);
  EXPECT_EQ(found.reason, "hwloc finds nothing here, so each of the 3 allowed cpus counts as a core");
  EXPECT_EQ(node_map(found, 3), "hwloc finds nothing here: taken to be one node");
}

TEST(ConfigThreads, OfThisMachineAreAtLeastOneAndAtMostItsCpus) {
  const Topology found = discover_topology();
  EXPECT_GE(found.threads, 1);
  EXPECT_LE(found.threads, static_cast<int>(found.allowed_cpus.size()));
  EXPECT_FALSE(found.nodes.empty());
}

}  // namespace
}  // namespace tandem
