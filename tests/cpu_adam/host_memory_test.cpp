#include "cpu_adam/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adam_cases.h"

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
