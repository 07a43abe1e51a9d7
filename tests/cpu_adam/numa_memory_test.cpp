#include "cpu_adam/numa_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "cpu_adam/host_memory.h"
#include "cpu_adam/make_workers.h"
#include "fake_machine.h"

namespace tandem {
namespace {

constexpr const char* kCard = "0000:3B:00.0";  // as CUDA writes it
constexpr const char* kNodeOfCard = "bus/pci/devices/0000:3b:00.0/numa_node";

/// What the kernel tells about the mapping that begins there, from its policy on: "default anon=3 ...",
/// "prefer:0 anon=3 ...", "prefer (many):0 ..."; empty where it doesn't tell.
std::string policy_at(const void* address) {
  std::ifstream in("/proc/self/numa_maps");
  const std::string begin = fmt::format("{:x} ", reinterpret_cast<uintptr_t>(address));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(begin)) return line.substr(begin.size());
  return {};
}

TEST(MemoryNuma, HwlocKnowsTheNodeOfACard) {
  const FakeFiles empty;
  const FakeMachine machine({{0, {0, 1}}, {2, {2, 3}, {}, "0000:3b:00.0"}, {5, {}}});
  EXPECT_EQ(numa_node_of_pci(kCard, empty.path()), 2);
  EXPECT_EQ(numa_node_of_pci("0000:3c:00.0", empty.path()), std::nullopt);
}

TEST(MemoryNuma, TheKernelIsAskedWhereHwlocOnlyKnowsTheMachine) {
  const FakeFiles sysfs;
  const FakeMachine machine({{0, {0, 1}}, {1, {2, 3}}}, "0000:3b:00.0");
  EXPECT_EQ(numa_node_of_pci(kCard, sysfs.path()), std::nullopt);
  sysfs.write(kNodeOfCard, "1\n");
  EXPECT_EQ(numa_node_of_pci(kCard, sysfs.path()), 1);
}

TEST(MemoryNuma, OfAMachineOfOneNodeThatIsTheCardsNode) {
  const FakeFiles empty;
  const FakeMachine machine({{3, {0, 1}}}, "0000:3b:00.0");
  EXPECT_EQ(numa_node_of_pci(kCard, empty.path()), 3);
}

TEST(MemoryNuma, WhatTheKernelDoesntKnowIsNoNode) {
  const FakeFiles sysfs;
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "numa:2 core:2 pu:1");
  EXPECT_EQ(numa_node_of_pci(kCard, sysfs.path()), std::nullopt);
  for (const char* text : {"-1\n", "", "node\n"}) {
    sysfs.write(kNodeOfCard, text);
    EXPECT_EQ(numa_node_of_pci(kCard, sysfs.path()), std::nullopt) << text;
  }
}

TEST(MemoryNuma, ADeviceThatIsNoCardLandsAnywhere) {
  const LandingNode landing = landing_node("");
  EXPECT_EQ(landing.node, std::nullopt);
  EXPECT_EQ(landing.why, "");
}

TEST(MemoryNuma, LandingSaysWhatItFound) {
  const FakeFiles sysfs;
  const WithEnvironment synthetic("HWLOC_SYNTHETIC", "numa:2 core:2 pu:1");  // binds nothing, refuses nothing
  EXPECT_EQ(landing_node(kCard, sysfs.path()).node, std::nullopt);
  EXPECT_EQ(landing_node(kCard, sysfs.path()).why, "it is not known which node 0000:3B:00.0 is next to");
  sysfs.write(kNodeOfCard, "1\n");
  EXPECT_EQ(landing_node(kCard, sysfs.path()).node, 1);
  EXPECT_EQ(landing_node(kCard, sysfs.path()).why, "next to 0000:3B:00.0");
  sysfs.write(kNodeOfCard, "7\n");  // a node that this process may not use
  EXPECT_EQ(landing_node(kCard, sysfs.path()).node, std::nullopt);
  EXPECT_EQ(landing_node(kCard, sysfs.path()).why,
            "the system refuses to bind memory to node 7, next to 0000:3B:00.0");
}

TEST(MemoryNuma, AllocationOnANodeIsBoundThere) {
  const int node = discover_topology().nodes.front().os_index;
  const auto workers = make_workers(PoolKind::plain, 2);
  const auto memory = make_host_memory(*workers);
  const size_t bytes = 40 * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // Between pages that nobody may touch, so that the kernel joins no mapping with a neighbour.
  const Buffer buffer = memory->allocate_for(bytes, "slots", {{{100, bytes / 2, 4096}}, node});
  const auto* data = static_cast<const unsigned char*>(buffer.raw());
  EXPECT_TRUE(std::all_of(data, data + bytes, [](unsigned char x) { return x == 0; }));
  EXPECT_EQ(memory->counters().scopes().at("slots").now, bytes);
  const std::string policy = policy_at(buffer.raw());
  if (!bind_to_node({static_cast<std::byte*>(buffer.raw()), bytes}, node) || policy.empty())
    GTEST_SKIP() << "this system binds no memory, or doesn't tell";
  EXPECT_TRUE(policy.starts_with("prefer")) << policy;
  EXPECT_NE(policy.find(fmt::format(":{} ", node)), std::string::npos) << policy;
}

TEST(MemoryNuma, ANodeThatIsntThereIsRefusedAndChangesNothing) {
  const auto workers = make_workers(PoolKind::plain, 2);
  const auto memory = make_host_memory(*workers);
  const Buffer buffer = memory->allocate_for(100000, "slots", {{}, 4711});
  EXPECT_EQ(buffer.bytes(), 100000u);
  EXPECT_FALSE(bind_to_node({static_cast<std::byte*>(buffer.raw()), 100000}, 4711));
}

}  // namespace
}  // namespace tandem
