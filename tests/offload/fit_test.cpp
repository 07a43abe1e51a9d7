// The limit check: which tier falls short, and knobs that really make a run fit.
#include "offload/fit.h"

#include <gtest/gtest.h>

#include "cpu_adam/host_memory.h"
#include "offload/choices.h"
#include "tests/core/config_testing.h"
#include "tests/core/expect_error.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::Where;

constexpr size_t kMiB = size_t{1} << 20;

/// A machine with the host device and these limits.
Machine machine_with(size_t device_limit, HostLimits limits = {}) {
  Machine machine;
  machine.device_kind = "host";
  machine.workers = make_workers(PoolKind::plain, 1);
  machine.host = make_host_memory(*machine.workers);
  machine.limits = limits;
  machine.device_limit = device_limit;
  return machine;
}

/// Keeps activations, optimizer on the device, four micro-batches of four, delayed: every knob can be turned.
EngineOptions spacious() {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.micro_batch = 4;
  options.micro_batches = 4;
  options.length = 64;
  options.keep = Keep::all;
  options.where = Where::device;
  options.policy.schedule = Schedule::delayed;
  options.arch.layers = 6;
  return options;
}

struct KnobCase {
  const char* says;
  void (*turn)(EngineOptions&);
};
constexpr KnobCase kCases[] = {
    {"activation_checkpointing.policy: \"recompute\"", [](EngineOptions& o) { o.keep = Keep::input; }},
    {"zero_optimization.offload_optimizer.device: \"cpu\"", [](EngineOptions& o) { o.where = Where::host; }},
    {"activation_checkpointing.policy: \"recompute_offload\"",
     [](EngineOptions& o) { o.keep = Keep::input_offloaded; }},
    {"train.order: \"micro_batch_major\"", [](EngineOptions& o) { o.order = Order::micro_batch_major; }},
    {"train_micro_batch_size_per_gpu: 1 with gradient_accumulation_steps: 16",
     [](EngineOptions& o) {
       o.micro_batch = 1;
       o.micro_batches = 16;
     }},
    {"zero_optimization.offload_param.device: \"cpu\"",
     [](EngineOptions& o) { o.window = o.where == Where::host ? 3 : 0; }},
    {"zero_optimization.offload_optimizer.schedule: \"exact\"",
     [](EngineOptions& o) { o.policy.schedule = Schedule::exact; }},
};

size_t device_bytes(const EngineOptions& options) {
  const ParamTable table(options.arch);
  return plan_memory(setup_of(options, table), table).device_bytes();
}

/// With ever more knobs turned already, and a limit that just lets one more pass: the hint is the first, in
/// their order, that passes by the plan of a setup made with it.
TEST(MemoryFit, OffersTheFirstKnobThatMakesItFit) {
  EngineOptions options = spacious();
  std::set<std::string> offered;
  for (const KnobCase& next : kCases) {
    const ParamTable table(options.arch);
    EngineOptions turned = options;
    next.turn(turned);
    const size_t limit = device_bytes(turned);
    if (limit < device_bytes(options)) {
      std::string expected;
      for (const KnobCase& c : kCases) {
        EngineOptions tried = options;
        c.turn(tried);
        if (expected.empty() && device_bytes(tried) <= limit) expected = c.says;
      }
      EXPECT_EQ(first_knob(machine_with(limit), setup_of(options, table), table).value_or("none"), expected);
      offered.insert(expected);
      options = turned;
    }
  }
  EXPECT_GE(offered.size(), 3u) << "the limits must tell the knobs apart";
}

TEST(MemoryFit, OffersTheScheduleThatTakesLessOfTheHost) {
  EngineOptions options;
  options.policy.schedule = Schedule::delayed;
  const ParamTable table(options.arch);
  const TrainSetup setup = setup_of(options, table);
  options.policy.schedule = Schedule::exact;
  const MemoryPlan plan = plan_memory(setup_of(options, table), table);
  HostLimits limits;
  limits.available_bytes =
      plan.host_bytes() + plan.device_bytes() + fixed_bytes(machine_with(SIZE_MAX), setup, table).working;
  EXPECT_EQ(first_knob(machine_with(SIZE_MAX, limits), setup, table).value_or("none"),
            "zero_optimization.offload_optimizer.schedule: \"exact\"");
}

/// A host that holds what this takes, on a machine whose device has memory of its own.
Machine card_beside(const EngineOptions& options, size_t device_limit) {
  const ParamTable table(options.arch);
  const TrainSetup setup = setup_of(options, table);
  HostLimits limits;
  limits.available_bytes = plan_memory(setup, table).host_bytes();
  Machine machine = machine_with(device_limit, limits);
  machine.device_kind = "cuda:0";
  *machine.limits.available_bytes += fixed_bytes(machine, setup, table).working;
  return machine;
}

TEST(MemoryFit, OffersCompactMastersWhereCompactMomentsAreThere) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.moments = MomentFormat::int8;
  const ParamTable table(options.arch);
  const TrainSetup setup = setup_of(options, table);
  options.masters = MasterFormat::ulp8;
  const size_t device = device_bytes(options);
  EXPECT_EQ(first_knob(card_beside(options, device), setup, table).value_or("none"),
            "zero_optimization.offload_optimizer.master_format: \"ulp8\"");
}

/// Where the device has room for what the host lacks, and the other way round.
TEST(MemoryFit, OffersAnotherRatio) {
  EngineOptions options, half;
  options.dtype = half.dtype = DType::bf16;
  half.where = Where::half;
  const ParamTable table(options.arch);
  for (EngineOptions* compact : {&options, &half}) {  // nothing else to turn
    compact->moments = MomentFormat::int8;
    compact->masters = MasterFormat::ulp8;
  }
  const std::string ratio = "zero_optimization.offload_optimizer.ratio: ";
  const std::string lower =
      first_knob(card_beside(half, SIZE_MAX), setup_of(options, table), table).value_or("none");
  ASSERT_TRUE(lower.starts_with(ratio)) << lower;
  EXPECT_EQ(place_by_ratio(table, std::stod(lower.substr(ratio.size()))), setup_of(half, table).placement);
  EXPECT_EQ(
      first_knob(card_beside(options, device_bytes(options)), setup_of(half, table), table).value_or("none"),
      ratio + "1");
}

/// What the config leaves to the plan is settled again with the knob turned: in compact states the
/// embedding's optimizer goes back to the host, which must have the room.
TEST(MemoryFit, CountsOnWhatThePlanWillChooseThen) {
  EngineOptions options;
  options.policy.schedule = Schedule::exact;
  const ParamTable table(options.arch);
  TrainSetup setup = setup_of(options, table);
  setup.open.embedding = true;
  options.moments = MomentFormat::int8;
  const Machine machine = card_beside(options, SIZE_MAX);
  settle(machine, table, setup);
  EXPECT_EQ(setup.placement.front(), Placement::device);
  EXPECT_EQ(first_knob(machine, setup, table).value_or("none"),
            "zero_optimization.offload_optimizer.moment_format: \"int8\"");
  Machine less = card_beside(options, SIZE_MAX);
  *less.limits.available_bytes -= 1;
  EXPECT_NE(first_knob(less, setup, table).value_or("none"),
            "zero_optimization.offload_optimizer.moment_format: \"int8\"");
}

TEST(MemoryFit, OffersKnobsThatHelpOnlyTogether) {
  const EngineOptions options = spacious();
  const ParamTable table(options.arch);
  EngineOptions both = options;
  both.keep = Keep::input;
  both.where = Where::host;
  const auto knob = first_knob(machine_with(device_bytes(both)), setup_of(options, table), table);
  EXPECT_EQ(knob.value_or("none"),
            "activation_checkpointing.policy: \"recompute\"; "
            "zero_optimization.offload_optimizer.device: \"cpu\"");
}

/// A later knob that turns the same key takes the place of the earlier one.
TEST(MemoryFit, OffersOneValueForAKey) {
  const EngineOptions options = spacious();
  const ParamTable table(options.arch);
  EngineOptions all = options;
  all.keep = Keep::input_offloaded;
  all.where = Where::host;
  const auto knob = first_knob(machine_with(device_bytes(all)), setup_of(options, table), table);
  EXPECT_EQ(knob.value_or("none"),
            "zero_optimization.offload_optimizer.device: \"cpu\"; "
            "activation_checkpointing.policy: \"recompute_offload\"");
}

TEST(MemoryFit, DoesNotOfferToTakeInputsBack) {
  EngineOptions options;
  options.keep = Keep::input_offloaded;
  const ParamTable table(options.arch);
  const auto knob = first_knob(machine_with(1024), setup_of(options, table), table);
  EXPECT_TRUE(knob && knob->starts_with("device.memory_limit")) << knob.value_or("none");
}

TEST(MemoryFit, OffersAHigherLimitLast) {
  const EngineOptions options;
  const ParamTable table(options.arch);
  const size_t mebibytes = device_bytes(options) / kMiB + 1;
  EXPECT_EQ(first_knob(machine_with(1024), setup_of(options, table), table).value_or("none"),
            fmt::format("device.memory_limit: \"{}MiB\" or more", mebibytes));
  HostLimits poor;
  poor.available_bytes = 1 << 20;
  EXPECT_EQ(first_knob(machine_with(1024, poor), setup_of(options, table), table), std::nullopt);
}

TEST(MemoryFit, TheHostPaysForItsDeviceToo) {
  HostLimits limits;
  limits.available_bytes = 100 * kMiB;
  const Machine machine = machine_with(SIZE_MAX, limits);
  EXPECT_EQ(host_shortfall(machine, 60 * kMiB, 40 * kMiB), "");
  EXPECT_EQ(host_shortfall(machine, 60 * kMiB + 1, 40 * kMiB),
            "the host needs 100.00 MiB where 100.00 MiB may be used");
  Machine card = machine_with(SIZE_MAX, limits);
  card.device_kind = "cuda:0";
  EXPECT_EQ(host_shortfall(card, 100 * kMiB, 40 * kMiB), "");
}

TEST(MemoryFit, NamesTheLimitThatHolds) {
  HostLimits group;
  group.available_bytes = 100 * kMiB;
  group.cgroup_bytes = 90 * kMiB;
  group.cgroup_free_bytes = 50 * kMiB;
  EXPECT_EQ(host_shortfall(machine_with(SIZE_MAX, group), 60 * kMiB, 0),
            "the host needs 60.00 MiB where 50.00 MiB may be used (the control group's limit)");
}

TEST(MemoryFit, AddressSpaceCountsEachByteOfTheDeviceTwice) {
  HostLimits limits;
  limits.address_space_bytes = size_t{8} << 30;
  const Machine machine = machine_with(SIZE_MAX, limits);
  EXPECT_EQ(host_shortfall(machine, 0, size_t{3} << 30), "");
  const std::string lack = host_shortfall(machine, 0, size_t{4} << 30);
  EXPECT_NE(lack.find("where 8.00 GiB may be used as address space (ulimit -v)"), lack.npos) << lack;
}

TEST(MemoryFit, TheErrorHasNeedLimitPlaceAndKnob) {
  const Config config = config_testing::with({"device.memory_limit=1KiB"});
  const EngineOptions options = spacious();
  const ParamTable table(options.arch);
  expect_error(Status::does_not_fit,
               {"the run does not fit: the device needs ", " where 1.00 KiB may be used",
                "--set device.memory_limit", "device.memory_limit: \""},
               [&] { check_fits(config, machine_with(1024), setup_of(options, table), table); });
  check_fits(config, machine_with(device_bytes(options)), setup_of(options, table), table);
}

}  // namespace
}  // namespace tandem
