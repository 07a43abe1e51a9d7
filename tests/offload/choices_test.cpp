// Where the optimizers go by ratio, and what the plan chooses where the config leaves it open.
#include "offload/choices.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpu_adam/host_memory.h"
#include "offload/memory_plan.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;

std::vector<Placement> first_on_device(const ParamTable& table, int blocks) {
  std::vector<Placement> placement(table.blocks().size(), Placement::host);
  std::fill_n(placement.begin(), blocks, Placement::device);
  return placement;
}

/// The tiny model's blocks, tied: 256*64; twice 2*64*64 + 2*32*64 + 3*128*64 + 2*64; 64.
TEST(MemoryPlacement, IsTheNearestInWholeBlocks) {
  const ParamTable table(testing::tiny_arch(true));
  const double embedding = 16384, layer = 36992, all = embedding + 2 * layer + 64;
  const double on_device[] = {0, embedding, embedding + layer, embedding + 2 * layer, all};
  for (int blocks = 0; blocks <= 4; ++blocks) {
    const double share = 1 - on_device[blocks] / all;
    EXPECT_EQ(place_by_ratio(table, share), first_on_device(table, blocks)) << blocks;
    if (blocks == 4) continue;
    const double between = 1 - (on_device[blocks] + on_device[blocks + 1]) / 2 / all;
    EXPECT_EQ(place_by_ratio(table, between + 1e-6), first_on_device(table, blocks)) << blocks;
    EXPECT_EQ(place_by_ratio(table, between - 1e-6), first_on_device(table, blocks + 1)) << blocks;
  }
  EXPECT_EQ(place_by_ratio(table, 1), first_on_device(table, 0));
  EXPECT_EQ(place_by_ratio(table, 0), first_on_device(table, 4));
}

TEST(MemoryPlacement, CountsOnlyWhatIsTrained) {
  const ParamTable table(testing::tiny_arch(true), {}, {"*embed*", "*layers.0.*"});
  EXPECT_EQ(place_by_ratio(table, 0), first_on_device(table, 4));
  EXPECT_EQ(place_by_ratio(table, 1), first_on_device(table, 0));
  EXPECT_EQ(place_by_ratio(table, 0.4), first_on_device(table, 3)) << "layer 1 is all but the final norm";
}

TEST(MemoryPlacement, IsSaid) {
  EngineOptions options;
  options.arch = testing::tiny_arch(true);
  const ParamTable table(options.arch);
  TrainSetup setup = setup_of(options, table);
  const auto text = [&](int blocks) {
    setup.placement = first_on_device(table, blocks);
    return placement_text(setup, table);
  };
  EXPECT_EQ(text(0), "optimizer on the host");
  EXPECT_EQ(text(1), "optimizer of embedding on the device, of 81.9 % of the parameters on the host");
  EXPECT_EQ(text(2),
            "optimizer of embedding and layer 0 on the device, of 41.0 % of the parameters on the host");
  EXPECT_EQ(text(3),
            "optimizer of embedding to layer 1 on the device, of 0.1 % of the parameters on the host");
  EXPECT_EQ(text(4), "optimizer on the device");
}

class MemoryChoices : public ::testing::Test {
 protected:
  MemoryChoices() {
    options_.policy.schedule = Schedule::exact;
    options_.dtype = DType::bf16;
    machine_.device_kind = "cuda:0";
    machine_.workers = make_workers(PoolKind::plain, 1);
    machine_.host = make_host_memory(*machine_.workers);
    machine_.device_limit = SIZE_MAX;
  }
  [[nodiscard]] TrainSetup settled(LeftOpen open = {.embedding = true}) const {
    TrainSetup setup = setup_of(options_, table_);
    setup.open = open;
    settle(machine_, table_, setup);
    return setup;
  }
  [[nodiscard]] size_t device_bytes(const std::vector<Placement>& placement, Keep keep = Keep::input) const {
    TrainSetup setup = setup_of(options_, table_);
    setup.placement = placement;
    setup.keep = keep;
    return plan_memory(setup, table_).device_bytes();
  }
  EngineOptions options_;
  ParamTable table_{testing::tiny_arch(false)};
  Machine machine_;
};

TEST_F(MemoryChoices, TheEmbeddingsOptimizerIsOnTheDeviceWhereThatHasRoom) {
  const std::vector<Placement> host = first_on_device(table_, 0), embedding = first_on_device(table_, 1);
  EXPECT_EQ(settled().placement, embedding);
  machine_.device_limit = device_bytes(embedding);
  EXPECT_EQ(settled().placement, embedding);
  machine_.device_limit -= 1;
  EXPECT_EQ(settled().placement, host);
  machine_.device_limit = 1;
  EXPECT_EQ(settled().placement, host) << "what takes least where nothing fits";
}

TEST_F(MemoryChoices, ActivationsAreKeptWhereTheDeviceHasRoom) {
  const std::vector<Placement> host = first_on_device(table_, 0);
  const LeftOpen open{.activations = true};
  machine_.device_limit = device_bytes(host, Keep::all);
  EXPECT_EQ(settled(open).keep, Keep::all);
  machine_.device_limit -= 1;
  EXPECT_EQ(settled(open).keep, Keep::input);
  EXPECT_EQ(activations_text(settled(open)), "recompute (chosen by auto)");
  machine_.device_limit = device_bytes(host, Keep::input) - 1;
  EXPECT_EQ(settled(open).keep, Keep::input_offloaded);
  machine_.device_limit = 1;
  EXPECT_EQ(settled(open).keep, Keep::input_offloaded) << "what takes least where nothing fits";
  EXPECT_EQ(activations_text(settled(open)), "recompute_offload (chosen by auto)");
  for (const Keep given : {Keep::all, Keep::input}) {
    options_.keep = given;
    EXPECT_EQ(settled({}).keep, given) << "what is given binds";
  }
  EXPECT_EQ(activations_text(settled({})), "recompute");
}

/// Room for either, but not for both.
TEST_F(MemoryChoices, ActivationsComeBeforeTheEmbedding) {
  options_.length = 64;
  const std::vector<Placement> host = first_on_device(table_, 0), embedding = first_on_device(table_, 1);
  const size_t kept = device_bytes(host, Keep::all), moved = device_bytes(embedding, Keep::input);
  machine_.device_limit = std::max(kept, moved);
  const LeftOpen both{.activations = true, .embedding = true};
  EXPECT_EQ(settled(both).keep, Keep::all);
  EXPECT_EQ(settled(both).placement, host);
  machine_.device_limit = kept - 1;
  EXPECT_EQ(settled(both).keep, Keep::input);
  EXPECT_EQ(settled(both).placement, moved < kept ? embedding : host);
  machine_.device_limit = device_bytes(embedding, Keep::all);
  EXPECT_EQ(settled(both).keep, Keep::all);
  EXPECT_EQ(settled(both).placement, embedding);
}

TEST_F(MemoryChoices, TheHostDeviceMustHaveRoomForBoth) {
  machine_.device_kind = "host";
  EXPECT_EQ(settled().placement, first_on_device(table_, 1));
  machine_.limits.available_bytes = 1;
  EXPECT_EQ(settled().placement, first_on_device(table_, 0));
}

TEST_F(MemoryChoices, OnlyWhereItHelpsAndChangesNoBit) {
  const std::vector<Placement> host = first_on_device(table_, 0);
  for (const Schedule schedule : {Schedule::synchronous, Schedule::delayed}) {
    options_.policy.schedule = schedule;
    EXPECT_EQ(settled().placement, host);
  }
  options_.policy.schedule = Schedule::exact;
  options_.moments = MomentFormat::int8;
  EXPECT_EQ(settled().placement, host) << "on the device it would be fp32";
  options_.moments = MomentFormat::fp32;
  EXPECT_EQ(settled().placement, first_on_device(table_, 1));
  table_ = ParamTable(options_.arch, {}, {"*embed*"});
  EXPECT_EQ(settled().placement, host) << "nothing of it is trained";
}

}  // namespace
}  // namespace tandem
