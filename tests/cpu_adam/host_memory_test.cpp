#include "cpu_adam/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "adam_cases.h"
#include "core/base/error.h"
#include "fake_machine.h"

namespace tandem {
namespace {

TEST(MemoryHost, IsPageAlignedZeroAndOfExactSize) {
  for (const HugePages huge : {HugePages::never, HugePages::where_allowed})
    for (const size_t bytes : {1u, 4095u, 4096u, 4097u, 5u << 20}) {
      const auto workers = make_workers(PoolKind::plain, 3);
      const auto memory = make_host_memory(*workers, huge);
      const Buffer buffer = memory->allocate(bytes, "masters");
      EXPECT_EQ(buffer.bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.raw()) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)),
                0u);
      const Tensor all = buffer.tensor(DType::u8, {static_cast<int64_t>(bytes)});
      const auto* data = all.data<uint8_t>();
      EXPECT_TRUE(std::all_of(data, data + bytes, [](uint8_t x) { return x == 0; }));
    }
}

TEST(MemoryHost, IsResidentWhenAllocateReturns) {
  for (const PoolKind kind : pool_kinds()) {
    const auto workers = make_workers(kind, 2);
    const auto memory = make_host_memory(*workers, HugePages::never);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = 3 * (256 << 10) + 5 * page + 1;  // several tasks, a last one that is not whole
    const Buffer buffer = memory->allocate(bytes, "masters");
    std::vector<unsigned char> resident((bytes + page - 1) / page);
    ASSERT_EQ(mincore(buffer.raw(), bytes, resident.data()), 0);
    for (const unsigned char flags : resident) EXPECT_EQ(flags & 1, 1);
  }
}

TEST(MemoryHost, IsResidentWhateverItsUseLeavesOut) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto workers = make_workers(PoolKind::plain, 3);
  const auto memory = make_host_memory(*workers, HugePages::never);
  const size_t bytes = 50 * page + 10;
  const std::vector<StaticRange> ranges{{3 * page + 64, 10 * page, page}, {20 * page, 100, 1024}};
  const Buffer buffer = memory->allocate_for(bytes, "masters", {ranges, {}});
  std::vector<unsigned char> resident(bytes / page + 1);
  ASSERT_EQ(mincore(buffer.raw(), bytes, resident.data()), 0);
  for (const unsigned char flags : resident) EXPECT_EQ(flags & 1, 1);
  EXPECT_THROW((void)memory->allocate_for(page, "masters", {{{0, page + 1, 64}}, {}}), InternalError);
}

/// The flags of the mapping that an address is in ("rd wr hg ..."), from /proc/self/smaps.
std::string mapping_flags(const void* address) {
  std::ifstream in("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

/// Serial workers that claim to be on several nodes.
class OnNodes : public Workers {
 public:
  explicit OnNodes(int nodes) : nodes_(nodes) {}
  [[nodiscard]] int count() const override { return 1; }
  [[nodiscard]] int nodes() const override { return nodes_; }
  [[nodiscard]] std::string describe() const override { return "serial"; }
  void run(int64_t tasks, const std::function<void(int64_t)>& task) override {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  }

 private:
  const int nodes_;
};

TEST(MemoryHost, AsksForHugePagesWhereNodesLeaveThemWhole) {
  if (huge_page_policy() == "unknown") GTEST_SKIP() << "a kernel without transparent huge pages";
  const auto asked = [](int nodes, size_t ranges, std::optional<int> node) {
    OnNodes workers(nodes);
    const auto memory = make_host_memory(workers);
    const size_t bytes = size_t{8} << 20;
    BufferUse use{{}, node};
    for (size_t i = 0; i < ranges; ++i) use.ranges.push_back({i * (bytes / ranges), bytes / ranges, 65536});
    const Buffer buffer = memory->allocate_for(bytes, "masters", use);
    return mapping_flags(static_cast<std::byte*>(buffer.raw()) + bytes / 2).find(" hg") != std::string::npos;
  };
  EXPECT_TRUE(asked(1, 8, {}));
  EXPECT_FALSE(asked(2, 8, {}));
  EXPECT_TRUE(asked(2, 8, discover_topology().nodes.front().os_index));  // all on one node
}

TEST(MemoryHost, HugePagesPayWhereATwentiethAtMostGoesAstray) {
  constexpr size_t kMiB = size_t{1} << 20;  // half a huge page at each border
  EXPECT_TRUE(huge_pages_pay(1, 1000, 1));
  EXPECT_TRUE(huge_pages_pay(80 * kMiB, 2, 2));
  EXPECT_FALSE(huge_pages_pay(80 * kMiB - 1, 2, 2));
  EXPECT_TRUE(huge_pages_pay(20 * 3 * 4 * kMiB, 3, 4));
  EXPECT_FALSE(huge_pages_pay(20 * 3 * 4 * kMiB - 20, 3, 4));
}

TEST(MemoryHost, ReadsTheSystemsPolicyOfHugePages) {
  const FakeFiles sysfs;
  EXPECT_EQ(huge_page_policy(sysfs.path()), "unknown");
  for (const auto& [text, policy] : std::vector<std::pair<std::string, std::string>>{
           {"[always] madvise never\n", "always"}, {"always madvise [never]\n", "never"}, {"?", "unknown"}}) {
    sysfs.write("kernel/mm/transparent_hugepage/enabled", text);
    EXPECT_EQ(huge_page_policy(sysfs.path()), policy);
  }
}

TEST(MemoryHost, CountsByScope) {
  const auto workers = make_workers(PoolKind::plain, 1);
  const auto memory = make_host_memory(*workers);
  {
    const Buffer a = memory->allocate(1000, "masters");
    const Buffer b = memory->allocate(24, "gradients");
    Buffer c = memory->allocate(500, "masters");
    c = Buffer();
    const auto scopes = memory->counters().scopes();
    EXPECT_EQ(scopes.at("masters").now, 1000u);
    EXPECT_EQ(scopes.at("masters").peak, 1500u);
    EXPECT_EQ(scopes.at("gradients").now, 24u);
    EXPECT_EQ(memory->counters().total().now, 1024u);
    EXPECT_EQ(memory->counters().total().peak, 1524u);
  }
  EXPECT_EQ(memory->counters().total().now, 0u);
}

TEST(MemoryHost, RefusalNamesTheNeedAndCountsNothing) {
  const auto workers = make_workers(PoolKind::plain, 1);
  const auto memory = make_host_memory(*workers);
  try {
    const Buffer buffer = memory->allocate(size_t{1} << 60, "masters");
    ADD_FAILURE() << "2^60 bytes given";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::does_not_fit);
    EXPECT_NE(error.message().find("1152921504606846976 bytes"), std::string::npos) << error.what();
    EXPECT_NE(error.where().find("masters"), std::string::npos);
  }
  EXPECT_EQ(memory->counters().total().peak, 0u);
}

TEST(MemoryHost, NothingIsAnEmptyBuffer) {
  const auto workers = make_workers(PoolKind::plain, 1);
  EXPECT_TRUE(make_host_memory(*workers)->allocate(0, "masters").empty());
}

TEST(MemoryHost, BuffersMayOutliveTheirAllocator) {
  const auto workers = make_workers(PoolKind::plain, 1);
  Buffer buffer = make_host_memory(*workers)->allocate(4096, "masters");
  buffer.tensor(DType::f32, {1024}).data<float>()[1023] = 1.0f;
  buffer = Buffer();
}

}  // namespace
}  // namespace tandem
