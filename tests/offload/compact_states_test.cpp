// Compact states: the engine equals a serial loop that decodes, updates and codes one parameter
// after the other, over schedules, placements, threads and saves; and a run may change the format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "offload/memory_plan.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::Outcome;
using testing::Where;

EngineOptions options_of(StateFormat format, float prediction = 1) {
  EngineOptions options;
  options.arch = testing::tiny_arch(true);
  options.dtype = DType::bf16;
  options.masters = format.master;
  options.moments = format.moments;
  options.micro_batches = 2;
  options.clip = 0.5;
  options.policy.warmup_steps = 2;
  options.prediction = prediction;
  return options;
}

/// Without a prediction the delayed schedule keeps the upper halves of split and ulp8 masters in the slots.
class IdentityOfStates : public ::testing::TestWithParam<std::tuple<StateFormat, float>> {
 protected:
  [[nodiscard]] static StateFormat format() { return std::get<StateFormat>(GetParam()); }
  [[nodiscard]] static EngineOptions own_options() {
    return options_of(format(), std::get<float>(GetParam()));
  }
};

TEST_P(IdentityOfStates, EqualsASerialLoop) {
  EngineOptions options = own_options();
  for (const Schedule schedule : {Schedule::synchronous, Schedule::exact, Schedule::delayed})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (!refusal(format(), dtype).empty()) continue;
      options.dtype = dtype;
      options.policy.schedule = schedule;
      if (dtype == DType::f16) options.policy.loss_scale = testing::tight_loss_scale(dtype);
      EXPECT_EQ(testing::difference(testing::run_engine(options, 6), testing::run_serial(options, 6)), "");
    }
}

TEST_P(IdentityOfStates, HoldsOverThreadsPoolsAndChaos) {
  EngineOptions options = own_options();
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

/// Without clipping, where updates begin as gradients land.
TEST_P(IdentityOfStates, EarlyUpdatesAreTheSynchronousOnes) {
  EngineOptions options = own_options();
  options.clip = 0;
  options.on_nonfinite = OnNonfinite::stop;
  const Outcome expected = testing::run_engine(options, 5);
  options.policy.schedule = Schedule::exact;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 5), expected), "");
  for (const uint64_t seed : {3, 4}) {
    options.chaos_seed = seed;
    EXPECT_EQ(testing::difference(testing::run_engine(options, 5), expected), "") << seed;
  }
}

TEST_P(IdentityOfStates, TheSeedDecidesTheBits) {
  EngineOptions options = own_options();
  if (!stochastic(format())) GTEST_SKIP() << "this format rounds nothing by chance";
  const Outcome one = testing::run_engine(options, 3);
  options.seed = 6;
  EXPECT_NE(testing::difference(testing::run_engine(options, 3), one), "");
}

/// With half of them on the device, in fp32, too.
TEST_P(IdentityOfStates, GoesOnFromASaveBitForBit) {
  EngineOptions options = own_options();
  options.policy.schedule = Schedule::delayed;
  for (const Where where : {Where::host, Where::half}) {
    options.where = where;
    const Outcome whole = testing::run_engine(options, 7);
    EngineRig first(options);
    first.run(4);
    EngineRig second(options, first.save());
    second.run(3);
    Outcome resumed = second.outcome();
    for (const auto& [plane, bits] : whole.planes) EXPECT_EQ(resumed.planes.at(plane), bits);
  }
}

TEST_P(IdentityOfStates, ARunMayChangeToItAndBack) {
  EngineOptions fp32 = options_of(StateFormat{}), compact = own_options();
  EngineRig before(fp32);
  before.run(4);
  EngineRig there(compact, before.save());
  EngineRig back(fp32, there.save());
  const auto floats = [](const testing::PlaneBits& bits, size_t block) {
    std::vector<float> values(bits[block].size() / sizeof(float));
    std::memcpy(values.data(), bits[block].data(), bits[block].size());
    return values;
  };
  // One step of a format at most: 2^-15 of an ulp8 master; 2^-7 of a bf16 moment; of an int8 group's largest
  // 1/32 of 1.085 times it for the first moment and, squared, as much for the second.
  const bool int8 = format().moments == MomentFormat::int8;
  const float moments = format().moments == MomentFormat::fp32 ? 0.0f : int8 ? 0.034f : 0x1p-7f;
  const float masters = format().master == MasterFormat::ulp8 ? 0x1p-15f : 0.0f;
  for (const auto& [plane, share] :
       {std::pair{Plane::master, masters}, {Plane::exp_avg, moments}, {Plane::exp_avg_sq, moments}})
    for (size_t block = 0; block < before.plane(plane).size(); ++block) {
      const auto a = floats(before.plane(plane), block), b = floats(back.plane(plane), block);
      ASSERT_EQ(a.size(), b.size());
      for (size_t group = 0; group < a.size(); group += kStateGroup) {
        float largest = 0;
        for (size_t i = group; i < group + kStateGroup; ++i) largest = std::max(largest, std::abs(a[i]));
        for (size_t i = group; i < group + kStateGroup; ++i)
          EXPECT_NEAR(b[i], a[i], share * (int8 && plane != Plane::master ? largest : std::abs(a[i])))
              << block << " " << i;
      }
    }
}

/// Nothing is lost: weights, moments and losses are those of fp32 masters.
TEST(IdentityOfSplit, IsThatOfFp32Masters) {
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16})
    for (const auto& [schedule, prediction] :
         {std::pair{Schedule::synchronous, 0.0f}, {Schedule::delayed, 0.0f}, {Schedule::delayed, 1.0f}}) {
      EngineOptions options = options_of({MasterFormat::fp32, moments}, prediction);
      options.policy.schedule = schedule;
      const Outcome fp32 = testing::run_engine(options, 6);
      options.masters = MasterFormat::split;
      Outcome split = testing::run_engine(options, 6);
      for (const auto& [plane, bits] : fp32.planes) {
        if (plane == Plane::master) continue;  // of which split has the lower half here
        EXPECT_EQ(split.planes.at(plane), bits);
      }
      ASSERT_EQ(split.decisions.size(), fp32.decisions.size());
      for (size_t i = 0; i < split.decisions.size(); ++i)
        EXPECT_EQ(split.decisions[i].loss, fp32.decisions[i].loss);
    }
}

TEST_P(IdentityOfStates, StreamedWeightsAreThoseThatStay) {
  for (const Schedule schedule : {Schedule::exact, Schedule::delayed}) {
    EngineOptions options = own_options();
    options.policy.schedule = schedule;
    options.policy.warmup_steps = 2;
    const Outcome resident = testing::run_engine(options, 6);
    options.window = 2;
    EXPECT_EQ(testing::difference(testing::run_engine(options, 6), resident), "");
  }
}

TEST_P(IdentityOfStates, DeviceOptimizersGoOnFromThemInFp32) {
  EngineOptions options = own_options();
  EngineRig host(options);
  host.run(3);
  options.where = Where::device;
  EngineRig device(options, host.save());
  EngineOptions fp32 = options;
  fp32.where = Where::host;
  fp32.masters = MasterFormat::fp32;
  fp32.moments = MomentFormat::fp32;
  EngineRig decoded(fp32, host.save());
  for (const Plane plane : {Plane::master, Plane::exp_avg, Plane::exp_avg_sq})
    EXPECT_EQ(device.plane(plane), decoded.plane(plane));
}

/// By arithmetic: bytes per element, 2 of each slot besides.
TEST_P(IdentityOfStates, TakesWhatThePlanSays) {
  for (const Schedule schedule : {Schedule::exact, Schedule::delayed}) {
    EngineOptions options = own_options();
    options.policy.schedule = schedule;
    EngineRig rig(options);
    rig.run(2);
    const auto elements = static_cast<size_t>(rig.table().padded_count());
    const size_t moment = format().moments == MomentFormat::fp32   ? 4 * elements
                          : format().moments == MomentFormat::bf16 ? 2 * elements
                                                                   : elements + elements / 32 * 2;
    const size_t slots = schedule == Schedule::delayed ? 2 : 1;
    const bool in_slot = slots == 2 && options.prediction == 0;
    const size_t master = format().master == MasterFormat::fp32    ? 4
                          : format().master == MasterFormat::split ? (in_slot ? 2 : 4)
                                                                   : (in_slot ? 1 : 3);
    const MemoryPlan plan = plan_memory(rig.setup(), rig.table());
    EXPECT_EQ(plan.host.at("master"), master * elements);
    EXPECT_EQ(plan.host.at("exp_avg"), moment);
    EXPECT_EQ(plan.host.at("exp_avg_sq"), moment);
    EXPECT_EQ(plan.host.at("slots"), slots * 2 * elements);
    EXPECT_EQ(rig.host().counters().total().now, plan.host_bytes());
  }
}

/// A run that doesn't predict goes on from one that did, and the other way round: between the saved version
/// and its successor everything is as if the weights had been published without a prediction.
TEST_P(IdentityOfStates, ACorrectionMayChangeBetweenRuns) {
  EngineOptions options = own_options();
  options.policy.schedule = Schedule::delayed;
  EngineRig first(options);
  first.run(4);
  const testing::Saved saved = first.save();
  options.prediction = options.prediction == 0 ? 1.0f : 0.0f;
  EngineOptions resident_upper = options;
  resident_upper.window = 2;
  EngineRig changed(options, saved), streamed(resident_upper, saved);
  changed.run(3);
  streamed.run(3);
  EXPECT_EQ(testing::difference(changed.outcome(), streamed.outcome()), "");
}

INSTANTIATE_TEST_SUITE_P(
    Formats, IdentityOfStates,
    ::testing::Combine(::testing::Values(StateFormat{MasterFormat::fp32, MomentFormat::bf16},
                                         StateFormat{MasterFormat::fp32, MomentFormat::int8},
                                         StateFormat{MasterFormat::split, MomentFormat::fp32},
                                         StateFormat{MasterFormat::split, MomentFormat::bf16},
                                         StateFormat{MasterFormat::ulp8, MomentFormat::int8}),
                       ::testing::Values(0.0f, 1.0f)),
    [](const auto& info) {
      const StateFormat format = std::get<StateFormat>(info.param);
      const bool predicts = std::get<float>(info.param) > 0;
      return fmt::format("{}_{}{}", row_of(format.master).name, row_of(format.moments).name,
                         predicts ? "_predicted" : "");
    });

}  // namespace
}  // namespace tandem
