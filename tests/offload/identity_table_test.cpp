// Where, how and on how many threads a step without delay runs, and what of it overlaps, changes no bit of
// it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>

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
};
constexpr PoolKind kTbb = PoolKind::tbb, kPlain = PoolKind::plain;
constexpr Order kLayer = Order::layer_major, kBatch = Order::micro_batch_major;
constexpr Schedule kSync = Schedule::synchronous, kExact = Schedule::exact;
constexpr Way kWays[] = {
    {Where::host, 1, kPlain, kBatch, Keep::input, kExact},
    {Where::host, 2, kTbb, kBatch, Keep::all, kSync},
    {Where::host, 3, kTbb, kLayer, Keep::input, kExact},
    {Where::device, 1, kTbb, kLayer, Keep::input, kSync},
    {Where::device, 2, kPlain, kLayer, Keep::input, kExact},
    {Where::device, 3, kPlain, kBatch, Keep::all, kSync},
    {Where::mixed, 1, kTbb, kLayer, Keep::all, kExact},
    {Where::mixed, 2, kPlain, kLayer, Keep::input, kSync},
    {Where::mixed, 3, kTbb, kBatch, Keep::input, kExact},
    {Where::half, 1, kPlain, kLayer, Keep::input, kExact},
    {Where::half, 2, kTbb, kBatch, Keep::all, kExact},
    {Where::half, 3, kPlain, kBatch, Keep::input, kSync},
};

template <class A, class B>
void expect_all_pairs(A Way::*a, B Way::*b, size_t count, const char* which) {
  std::set<std::pair<A, B>> seen;
  for (const Way& way : kWays) seen.insert({way.*a, way.*b});
  EXPECT_EQ(seen.size(), count) << which;
}

TEST(Identity, TableCoversEveryPair) {
  expect_all_pairs(&Way::where, &Way::threads, 12, "where, threads");
  expect_all_pairs(&Way::where, &Way::pool, 8, "where, pool");
  expect_all_pairs(&Way::where, &Way::order, 8, "where, order");
  expect_all_pairs(&Way::where, &Way::keep, 8, "where, keep");
  expect_all_pairs(&Way::threads, &Way::pool, 6, "threads, pool");
  expect_all_pairs(&Way::threads, &Way::order, 6, "threads, order");
  expect_all_pairs(&Way::threads, &Way::keep, 6, "threads, keep");
  expect_all_pairs(&Way::pool, &Way::order, 4, "pool, order");
  expect_all_pairs(&Way::pool, &Way::keep, 4, "pool, keep");
  expect_all_pairs(&Way::order, &Way::keep, 4, "order, keep");
  expect_all_pairs(&Way::schedule, &Way::where, 8, "schedule, where");
  expect_all_pairs(&Way::schedule, &Way::threads, 6, "schedule, threads");
  expect_all_pairs(&Way::schedule, &Way::pool, 4, "schedule, pool");
  expect_all_pairs(&Way::schedule, &Way::order, 4, "schedule, order");
  expect_all_pairs(&Way::schedule, &Way::keep, 4, "schedule, keep");
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
