// Moments in bf16 and int8: the engine equals a serial loop that decodes, updates and codes one parameter
// after the other, over schedules, placements, threads and saves; and a run may change the format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "offload/memory_plan.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::Outcome;
using testing::Where;

EngineOptions options_of(MomentFormat moments) {
  EngineOptions options;
  options.arch = testing::tiny_arch(true);
  options.dtype = DType::bf16;
  options.moments = moments;
  options.micro_batches = 2;
  options.clip = 0.5;
  options.policy.warmup_steps = 2;
  options.prediction = 1;
  return options;
}

class IdentityOfMoments : public ::testing::TestWithParam<MomentFormat> {};

TEST_P(IdentityOfMoments, EqualsASerialLoop) {
  EngineOptions options = options_of(GetParam());
  for (const Schedule schedule : {Schedule::synchronous, Schedule::delayed})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      options.dtype = dtype;
      options.policy.schedule = schedule;
      if (dtype == DType::f16) options.policy.loss_scale = testing::tight_loss_scale(dtype);
      EXPECT_EQ(testing::difference(testing::run_engine(options, 6), testing::run_serial(options, 6)), "");
    }
}

TEST_P(IdentityOfMoments, HoldsOverThreadsPoolsAndChaos) {
  EngineOptions options = options_of(GetParam());
  options.policy.schedule = Schedule::delayed;
  const Outcome expected = testing::run_engine(options, 5);
  options.threads = 1;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 5), expected), "");
  options.threads = 3;
  options.keep = Keep::all;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 5), expected), "");
  options.chaos_seed = 11;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 5), expected), "");
  options.pool = usual_pool();
  options.chaos_seed.reset();
  EXPECT_EQ(testing::difference(testing::run_engine(options, 5), expected), "");
}

TEST_P(IdentityOfMoments, TheSeedDecidesTheBits) {
  EngineOptions options = options_of(GetParam());
  const Outcome one = testing::run_engine(options, 3);
  options.seed = 6;
  EXPECT_NE(testing::difference(testing::run_engine(options, 3), one), "");
}

TEST_P(IdentityOfMoments, GoesOnFromASaveBitForBit) {
  EngineOptions options = options_of(GetParam());
  options.policy.schedule = Schedule::delayed;
  const Outcome whole = testing::run_engine(options, 7);
  EngineRig first(options);
  first.run(4);
  EngineRig second(options, first.save());
  second.run(3);
  Outcome resumed = second.outcome();
  for (const auto& [plane, bits] : whole.planes) EXPECT_EQ(resumed.planes.at(plane), bits);
}

TEST_P(IdentityOfMoments, ARunMayChangeToItAndBack) {
  EngineOptions fp32 = options_of(MomentFormat::fp32), compact = options_of(GetParam());
  EngineRig before(fp32);
  before.run(4);
  EngineRig there(compact, before.save());
  EngineRig back(fp32, there.save());
  const auto floats = [](const testing::PlaneBits& bits, size_t block) {
    std::vector<float> values(bits[block].size() / sizeof(float));
    std::memcpy(values.data(), bits[block].data(), bits[block].size());
    return values;
  };
  EXPECT_EQ(back.plane(Plane::master), before.plane(Plane::master));
  // One step of the format: 2^-7 of a bf16; of an int8 group's largest, 2/127 for the first moment's (its
  // companding is coarsest at the top) and, squared, 2 (2/255) for the second's, on top of the scale's 2^-7.
  const bool int8 = GetParam() == MomentFormat::int8;
  for (const auto& [plane, share] : {std::pair{Plane::exp_avg, int8 ? 0.05f : 0x1p-7f},
                                     std::pair{Plane::exp_avg_sq, int8 ? 0.05f : 0x1p-7f}})
    for (size_t block = 0; block < before.plane(plane).size(); ++block) {
      const auto a = floats(before.plane(plane), block), b = floats(back.plane(plane), block);
      ASSERT_EQ(a.size(), b.size());
      for (size_t group = 0; group < a.size(); group += kStateGroup) {
        float largest = 0;
        for (size_t i = group; i < group + kStateGroup; ++i) largest = std::max(largest, std::abs(a[i]));
        for (size_t i = group; i < group + kStateGroup; ++i)
          EXPECT_NEAR(b[i], a[i], share * (int8 ? largest : std::abs(a[i]))) << block << " " << i;
      }
    }
}

TEST_P(IdentityOfMoments, DeviceOptimizersGoOnFromThemInFp32) {
  EngineOptions options = options_of(GetParam());
  EngineRig host(options);
  host.run(3);
  options.where = Where::device;
  EngineRig device(options, host.save());
  EngineOptions fp32 = options;
  fp32.where = Where::host;
  fp32.moments = MomentFormat::fp32;
  EngineRig decoded(fp32, host.save());
  for (const Plane plane : {Plane::master, Plane::exp_avg, Plane::exp_avg_sq})
    EXPECT_EQ(device.plane(plane), decoded.plane(plane));
}

/// By arithmetic: bytes per element of both moments.
TEST_P(IdentityOfMoments, TakesWhatThePlanSays) {
  EngineOptions options = options_of(GetParam());
  EngineRig rig(options);
  rig.run(2);
  const auto elements = static_cast<size_t>(rig.table().padded_count());
  const size_t each = GetParam() == MomentFormat::int8 ? elements + elements / 32 * 2 : 2 * elements;
  const MemoryPlan plan = plan_memory(rig.setup(), rig.table());
  EXPECT_EQ(plan.host.at("exp_avg"), each);
  EXPECT_EQ(plan.host.at("exp_avg_sq"), each);
  EXPECT_EQ(rig.host().counters().total().now, plan.host_bytes());
}

INSTANTIATE_TEST_SUITE_P(Formats, IdentityOfMoments,
                         ::testing::Values(MomentFormat::bf16, MomentFormat::int8),
                         [](const auto& info) { return std::string(row_of(info.param).name); });

}  // namespace
}  // namespace tandem
