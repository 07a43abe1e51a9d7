#include "tests/offload/identity_ways.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/core/address_sanitizer.h"

namespace tandem::testing {

namespace {

constexpr PoolKind kTbb = PoolKind::tbb, kPlain = PoolKind::plain;
constexpr Order kLayer = Order::layer_major, kBatch = Order::micro_batch_major;
constexpr Keep kAll = Keep::all, kInput = Keep::input, kAway = Keep::input_offloaded;
constexpr Schedule kSync = Schedule::synchronous, kExact = Schedule::exact;
constexpr uint64_t kThreads = 0, kSeed = 7;

// The values of each column, in order.
constexpr Where kWheres[] = {Where::host, Where::device, Where::mixed, Where::half};
constexpr int kThreadCounts[] = {1, 2, 3};
constexpr PoolKind kPools[] = {kPlain, kTbb};
constexpr Order kOrders[] = {kLayer, kBatch};
constexpr Keep kKeeps[] = {kAll, kInput, kAway};
constexpr Schedule kSchedules[] = {kSync, kExact};
constexpr int kWindows[] = {0, 2, 3};
constexpr int kNodes[] = {1, 2};
constexpr uint64_t kSeeds[] = {kThreads, kSeed};
constexpr const char* kTwoNodes = "numa:2 core:2 pu:1";

size_t place_of(const auto& value, const auto& values) {
  return static_cast<size_t>(std::ranges::find(values, value) - std::ranges::begin(values));
}

Arch arch_of(Family family, bool tied) {
  Arch arch = family == Family::gpt2 ? gpt2_arch() : tiny_arch(tied);
  arch.tied = tied;
  arch.qkv_bias |= family == Family::qwen2;
  arch.qk_norm = family == Family::qwen3;
  arch.layers = 4;  // more than a window has
  return arch;
}

Topology machine_with(int nodes) {
  Topology topology;
  for (int node = 0; node < nodes; ++node) topology.nodes.push_back({node, 2});
  topology.threads = 2 * nodes;
  return topology;
}

/// Whether the way's threads are to be spread over arenas of several nodes.
bool binds(const Way& way) {
  return way.pool == kTbb && usual_pool() == kTbb && !kAddressSanitizer && way.nodes > 1 && way.threads > 1;
}

}  // namespace

std::array<size_t, kColumns> columns_of(const Way& way) {
  return {place_of(way.where, kWheres),   place_of(way.threads, kThreadCounts),
          place_of(way.pool, kPools),     place_of(way.order, kOrders),
          place_of(way.keep, kKeeps),     place_of(way.schedule, kSchedules),
          place_of(way.window, kWindows), place_of(way.nodes, kNodes),
          place_of(way.seed, kSeeds)};
}

std::string name_of(const Way& way) {
  std::string name = "way";
  for (const size_t column : columns_of(way)) name += fmt::format(" {}", column);
  return name;
}

const std::vector<Way>& pairwise_ways() {
  static const std::vector<Way> ways{
      {Where::host, 1, kPlain, kLayer, kAll, kExact, 3, 1, kSeed},
      {Where::host, 2, kPlain, kBatch, kAway, kSync, 2, 2, kThreads},
      {Where::host, 3, kTbb, kLayer, kInput, kSync, 0, 1, kSeed},
      {Where::device, 1, kTbb, kBatch, kInput, kExact, 0, 1, kThreads},
      {Where::device, 2, kTbb, kLayer, kAway, kSync, 2, 1, kSeed},
      {Where::device, 3, kPlain, kLayer, kAll, kSync, 3, 2, kThreads},
      {Where::mixed, 1, kTbb, kBatch, kAll, kExact, 2, 2, kThreads},
      {Where::mixed, 2, kTbb, kBatch, kInput, kSync, 3, 2, kSeed},
      {Where::mixed, 3, kPlain, kLayer, kAway, kExact, 0, 1, kThreads},
      {Where::half, 1, kTbb, kLayer, kAway, kSync, 3, 1, kSeed},
      {Where::half, 2, kPlain, kLayer, kAll, kExact, 0, 2, kThreads},
      {Where::half, 3, kPlain, kBatch, kInput, kSync, 2, 1, kThreads},
  };
  return ways;
}

std::vector<Way> all_ways() {
  std::vector<Way> ways{{}};
  const auto times = [&](const auto& values, auto member) {
    std::vector<Way> more;
    for (const Way& way : ways)
      for (const auto& value : values) {
        more.push_back(way);
        more.back().*member = value;
      }
    ways = std::move(more);
  };
  times(kWheres, &Way::where);
  times(kThreadCounts, &Way::threads);
  times(kPools, &Way::pool);
  times(kOrders, &Way::order);
  times(kKeeps, &Way::keep);
  times(kSchedules, &Way::schedule);
  times(kWindows, &Way::window);
  times(kNodes, &Way::nodes);
  times(kSeeds, &Way::seed);
  return ways;
}

std::string name_of(const Sum& sum) {
  constexpr const char* kFamilies[] = {"llama", "gpt2", "qwen2", "qwen3"};
  return fmt::format("{}_{}_{}micro{}{}", kFamilies[static_cast<size_t>(sum.family)],
                     tandem::name_of(sum.dtype), sum.micro_batches, sum.clipped ? "_clip" : "",
                     sum.tied ? "_tied" : "");
}

std::vector<Sum> all_sums() {
  std::vector<Sum> sums;
  for (const Family family : {Family::llama, Family::gpt2, Family::qwen2, Family::qwen3})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (int64_t m = 1; m <= 4; ++m)
        for (const bool clipped : {false, true})
          for (const bool tied : {false, true}) sums.push_back({family, dtype, m, clipped, tied});
  return sums;
}

std::vector<Sum> pairwise_sums() {
  std::vector<Sum> sums;
  int64_t d = 0;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t m = 1; m <= 4; ++m)
      for (const int clipped : {0, 1})
        sums.push_back({static_cast<Family>((m + d + 2 * clipped) % 4), dtype, m, clipped == 1,
                        (m + d + clipped) % 2 == 0});
    ++d;
  }
  return sums;
}

EngineOptions reference_of(const Sum& sum) {
  EngineOptions options;
  options.arch = arch_of(sum.family, sum.tied);
  options.dtype = sum.dtype;
  options.micro_batches = sum.micro_batches;
  options.micro_batch = sum.micro_batches == 1 ? 2 : 1;
  options.mask_every = 7;
  options.clip = sum.clipped ? 0.5 : 0;
  // Where nothing can be skipped or clipped `exact` updates early, else behind the decision.
  if (sum.dtype != DType::f16) options.on_nonfinite = OnNonfinite::stop;
  if (sum.dtype == DType::f16) {
    options.policy.loss_scale = tight_loss_scale(DType::f16);
    options.lone_target_steps = {4, 9};
  }
  options.where = Where::device;
  options.keep = Keep::all;
  options.threads = 1;
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
  options.machine = machine_with(way.nodes);
  if (way.seed != kThreads) options.chaos_seed = way.seed;
  return options;
}

int wrong_ways(const Sum& sum, const std::vector<Way>& ways, const Outcome& expected) {
  const EngineOptions reference = reference_of(sum);
  int wrong = 0;
  for (const Way& way : ways) {
    const EngineOptions options = options_of(reference, way);
    if (binds(way) && make_workers(options.pool, options.threads, *options.machine)->nodes() != way.nodes) {
      fmt::print(stderr, "{}: threads are not on their nodes\n", name_of(way));
      ++wrong;
    }
    const std::string found = difference(run_engine(options, kIdentitySteps), expected);
    if (found.empty()) continue;
    ++wrong;
    fmt::print(stderr, "{}, {}: {}\n", name_of(sum), name_of(way), found);
  }
  return wrong;
}

namespace {
int wrong_ways(const Sum& sum, const std::vector<Way>& ways) {
  return wrong_ways(sum, ways, run_engine(reference_of(sum), kIdentitySteps));
}
}  // namespace

void exit_with_wrong_ways(const Sum& sum, const std::vector<Way>& ways) {
  setenv("HWLOC_SYNTHETIC", kTwoNodes, 1);
  std::_Exit(std::min(wrong_ways(sum, ways), 99));
}

void expect_no_wrong_way(const Sum& sum, const std::vector<Way>& ways) {
  if (usual_pool() == PoolKind::plain) {
    EXPECT_EQ(wrong_ways(sum, ways), 0);
    return;
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_wrong_ways(sum, ways), ::testing::ExitedWithCode(0), "");
}

}  // namespace tandem::testing
