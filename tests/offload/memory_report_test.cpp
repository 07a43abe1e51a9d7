// What a run needs against what there is: needs are the recording's, limits those of the machine.
#include <gtest/gtest.h>

#include "cpu_adam/host_memory.h"
#include "offload/checkpoint.h"
#include "offload/fit.h"
#include "offload/plan.h"
#include "tests/core/config_testing.h"
#include "tests/core/expect_error.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;

constexpr size_t kMiB = size_t{1} << 20;

Machine machine_of(const std::string& kind, size_t device_limit, size_t available) {
  Machine machine;
  machine.device_kind = kind;
  machine.workers = make_workers(PoolKind::plain, 1);
  machine.host = make_host_memory(*machine.workers);
  machine.limits.available_bytes = available;
  machine.device_limit = device_limit;
  return machine;
}

/// A small model whose run is reported on machines of one kind.
struct Case {
  EngineOptions options;
  ParamTable table{options.arch};
  TrainSetup setup = setup_of(options, table);
  MemoryPlan plan = plan_memory(setup, table);
  Config config = config_testing::with({"checkpoint.every=5", "checkpoint.keep=2"});

  [[nodiscard]] MemoryReport report(const Machine& machine, uint64_t disk_free) const {
    return report_memory(config, machine, setup, table, disk_free);
  }
  [[nodiscard]] size_t save_bytes() const {
    return checkpoint_bytes(table, setup.dtype, largest_save(setup, table, true));
  }
};

TEST(MemoryReport, NeedsAreWhatTheAllocatorsWillCount) {
  const Case c;
  const MemoryReport report = c.report(machine_of("cuda", SIZE_MAX, 1024 * kMiB), SIZE_MAX);
  ASSERT_EQ(report.tiers.size(), 4u);
  EXPECT_TRUE(report.fits());
  EXPECT_EQ(report.first_knob, std::nullopt);
  EXPECT_EQ(report.tiers[0].scopes, c.plan.device);
  EXPECT_EQ(report.tiers[0].need, c.plan.device_bytes());
  EXPECT_EQ(report.tiers[1].need, c.plan.pinned_bytes() + c.plan.staging);
  EXPECT_EQ(report.tiers[2].need, c.plan.host_bytes() + c.plan.staging);
  EXPECT_EQ(report.tiers[3].need, c.save_bytes());
}

/// One byte less than the whole of a tier's need, and it is named; with just as much it fits.
TEST(MemoryReport, EveryTierHoldsToTheByte) {
  const Case c;
  const size_t device = c.plan.device_bytes(), disk = c.save_bytes();
  for (const char* kind : {"host", "cuda"}) {
    const Machine any = machine_of(kind, device, SIZE_MAX);
    const size_t shared = any.device_shares_host() ? device : 0,
                 host = c.plan.host_bytes() + fixed_bytes(any, c.setup, c.table).working + shared;
    EXPECT_EQ(c.report(machine_of(kind, device, host), disk).lack, "");
    EXPECT_TRUE(c.report(machine_of(kind, device - 1, host), disk).lack.starts_with("the device needs "));
    EXPECT_TRUE(c.report(machine_of(kind, device, host - 1), disk).lack.starts_with("the host needs "));
    const MemoryReport full = c.report(machine_of(kind, device, host), disk - 1);
    EXPECT_TRUE(full.lack.starts_with("the disk needs ")) << full.lack;
    EXPECT_EQ(full.where, "output_dir");
    EXPECT_EQ(full.first_knob.value_or(""), "free space, or an output_dir on another disk");
  }
}

TEST(MemoryReport, FitsWhereTrainWouldBegin) {
  const Case c;
  const auto begins = [&](const Machine& machine) {
    try {
      check_fits(c.config, machine, c.setup, c.table);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  int fitting = 0;
  for (const size_t device : {kMiB / 4, kMiB, 16 * kMiB})
    for (const size_t host : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB})
      for (const size_t space : {size_t{512} * kMiB, size_t{4096} * kMiB}) {
        Machine machine = machine_of("host", device, host);
        machine.limits.address_space_bytes = space;
        const bool fits = c.report(machine, SIZE_MAX).fits();
        EXPECT_EQ(fits, begins(machine)) << device << " " << host << " " << space;
        fitting += fits ? 1 : 0;
      }
  EXPECT_GE(fitting, 2);
  EXPECT_LE(fitting, 22);
}

TEST(MemoryReport, NamesAllThatLacksAndNoKnobThatIsNotEnough) {
  const Case c;
  const MemoryReport report = c.report(machine_of("host", 1024, 64 * kMiB), 1);
  EXPECT_NE(report.lack.find("; the disk needs "), report.lack.npos) << report.lack;
  EXPECT_EQ(report.where, "device.memory_limit");
  EXPECT_EQ(report.first_knob, std::nullopt);
  EXPECT_NE(c.report(machine_of("host", 1024, 64 * kMiB), SIZE_MAX).first_knob, std::nullopt);
}

TEST(MemoryReport, ACardThatIsNotHereIsKnownByItsLimit) {
  const Machine machine = find_planned_machine(
      config_testing::with({"device.kind=cuda:7", "device.memory_limit=23GiB", "device.threads=1"}));
  EXPECT_EQ(machine.device_kind, "cuda:7");
  EXPECT_EQ(machine.device_limit, size_t{23} << 30);
  EXPECT_FALSE(machine.device_shares_host());
  expect_error(Status::usage, {"\"cuda:7\" is not here (", "--set device.kind", "device.memory_limit"},
               [] { (void)find_planned_machine(config_testing::with({"device.kind=cuda:7"})); });
}

}  // namespace
}  // namespace tandem
