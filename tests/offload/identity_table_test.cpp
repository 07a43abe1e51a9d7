// Where, how and on how many threads a step without delay runs, and what of it overlaps, changes no bit of
// it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <set>

#include "tests/offload/engine_rig.h"
#include "tests/offload/golden_weights.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::Outcome;
using testing::Where;

constexpr int64_t kSteps = 12;

/// What may differ. Any two values of any two columns meet in some row; Identity.TableCoversEveryPair checks.
struct Way {
  Where where;
  int threads;
  PoolKind pool;
  Order order;
  Keep keep;
  Schedule schedule;
  int window;  ///< of streamed weights; 0: resident
};
constexpr PoolKind kTbb = PoolKind::tbb, kPlain = PoolKind::plain;
constexpr Order kLayer = Order::layer_major, kBatch = Order::micro_batch_major;
constexpr Keep kAll = Keep::all, kInput = Keep::input, kAway = Keep::input_offloaded;
constexpr Schedule kSync = Schedule::synchronous, kExact = Schedule::exact;
constexpr Way kWays[] = {
    {Where::host, 1, kPlain, kBatch, kAway, kSync, 2},  {Where::host, 2, kPlain, kLayer, kInput, kSync, 3},
    {Where::host, 3, kTbb, kLayer, kAll, kExact, 0},    {Where::mixed, 1, kPlain, kLayer, kAll, kSync, 2},
    {Where::mixed, 2, kTbb, kBatch, kInput, kExact, 3}, {Where::mixed, 3, kPlain, kBatch, kAway, kSync, 0},
    {Where::half, 1, kPlain, kLayer, kAll, kSync, 3},   {Where::half, 2, kTbb, kLayer, kAway, kSync, 0},
    {Where::half, 3, kTbb, kBatch, kInput, kExact, 2},  {Where::device, 1, kTbb, kLayer, kInput, kExact, 0},
    {Where::device, 2, kTbb, kBatch, kAll, kSync, 2},   {Where::device, 3, kPlain, kLayer, kAway, kExact, 3},
};

/// A way's columns as numbers, and how many values each has.
std::array<int, 7> columns_of(const Way& way) {
  return {static_cast<int>(way.where),
          way.threads,
          static_cast<int>(way.pool),
          static_cast<int>(way.order),
          static_cast<int>(way.keep),
          static_cast<int>(way.schedule),
          way.window};
}
constexpr std::array<size_t, 7> kValues{4, 3, 2, 2, 3, 2, 3};

TEST(Identity, TableCoversEveryPair) {
  for (size_t a = 0; a < kValues.size(); ++a)
    for (size_t b = a + 1; b < kValues.size(); ++b) {
      std::set<std::pair<int, int>> seen;
      for (const Way& way : kWays) seen.insert({columns_of(way)[a], columns_of(way)[b]});
      EXPECT_EQ(seen.size(), kValues[a] * kValues[b]) << "columns " << a << " and " << b;
    }
}

/// What decides the numbers.
struct Sum {
  DType dtype;
  int64_t micro_batches;
  bool clipped, tied;
};

EngineOptions options_of(const Sum& sum) {
  EngineOptions options;
  options.arch = testing::tiny_arch(sum.tied);
  options.arch.layers = 4;  // more than a window has
  options.dtype = sum.dtype;
  options.micro_batches = sum.micro_batches;
  options.micro_batch = sum.micro_batches == 1 ? 2 : 1;
  options.mask_every = 7;
  options.clip = sum.clipped ? 0.5 : 0;
  // Where nothing can be skipped or clipped `exact` updates early, else behind the decision.
  if (sum.dtype != DType::f16) options.on_nonfinite = OnNonfinite::stop;
  if (sum.dtype == DType::f16) {
    options.policy.loss_scale = testing::tight_loss_scale(DType::f16);
    options.lone_target_steps = {4, 9};
  }
  return options;
}

EngineOptions options_of(EngineOptions options, const Way& way) {
  options.where = way.where;
  options.threads = way.threads;
  options.pool = way.pool == kTbb ? usual_pool() : kPlain;  // a build without oneTBB has the plain one only
  options.order = way.order;
  options.keep = way.keep;
  options.policy.schedule = way.schedule;
  options.window = way.window;
  return options;
}

std::vector<Sum> all_sums() {
  std::vector<Sum> sums;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t m = 1; m <= 4; ++m)
      for (const bool clipped : {false, true}) {
        // Each dtype, each number of micro-batches and each clipping is met tied and untied.
        const bool tied = (static_cast<int64_t>(dtype) + m + (clipped ? 1 : 0)) % 2 == 0;
        sums.push_back({dtype, m, clipped, tied});
      }
  return sums;
}

std::string name_of_sum(const ::testing::TestParamInfo<Sum>& info) {
  const Sum& sum = info.param;
  return fmt::format("{}_{}micro{}{}", name_of(sum.dtype), sum.micro_batches, sum.clipped ? "_clip" : "",
                     sum.tied ? "_tied" : "");
}

class IdentityOfWays : public ::testing::TestWithParam<Sum> {};

TEST_P(IdentityOfWays, EveryWayGivesTheBitsOfTheDeviceOptimizer) {
  EngineOptions reference = options_of(GetParam());
  reference.where = Where::device;
  reference.keep = Keep::all;
  reference.threads = 1;
  const Outcome expected = testing::run_engine(reference, kSteps);
  int64_t skipped = 0, clipped = 0;
  for (const Decision& d : expected.decisions) {
    skipped += d.skipped ? 1 : 0;
    clipped += d.clip_coef < 1 ? 1 : 0;
  }
  EXPECT_EQ(skipped, GetParam().dtype == DType::f16 ? 2 : 0);
  EXPECT_EQ(clipped > 0, GetParam().clipped);
  for (size_t way = 0; way < std::size(kWays); ++way)
    EXPECT_EQ(testing::difference(testing::run_engine(options_of(reference, kWays[way]), kSteps), expected),
              "")
        << "way " << way;
}

/// The reference itself is right: it is the plain loop's.
TEST_P(IdentityOfWays, TheDeviceOptimizerEqualsASerialLoop) {
  EngineOptions reference = options_of(GetParam());
  reference.where = Where::device;
  EXPECT_EQ(
      testing::difference(testing::run_engine(reference, kSteps), testing::run_serial(reference, kSteps)),
      "");
}

INSTANTIATE_TEST_SUITE_P(Sums, IdentityOfWays, ::testing::ValuesIn(all_sums()), name_of_sum);

TEST(Identity, NoticesOneOtherBit) {
  EngineOptions options = options_of({DType::f32, 2, true, false});
  const Outcome expected = testing::run_engine(options, 3);
  options.fill = [](const ParamSpec& spec, std::span<float> out) {
    golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
    if (spec.name == "model.norm.weight") out[17] = std::nextafter(out[17], 2.0f);
  };
  EXPECT_NE(testing::difference(testing::run_engine(options, 3), expected), "");
}

}  // namespace
}  // namespace tandem
