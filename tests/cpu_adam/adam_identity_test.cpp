#include <gtest/gtest.h>

#include <cstdlib>

#include "adam_cases.h"
#include "covering_table.h"
#include "tests/core/address_sanitizer.h"

// The bits of a pass over instruction sets, threads, nodes, pools, formats and all else that must not change
// them: in a table where every value of one stands beside every value of every other. (That the scalar
// kernels give the formula's bits: adam_test.cpp.)

namespace tandem {
namespace {

constexpr int kThreads[] = {1, 2, 3, 5};
constexpr int kNodes[] = {1, 2, 4};
constexpr float kPredictions[] = {0.0f, 1.5f};
constexpr std::pair<DType, DType> kTypes[] = {{DType::f32, DType::f32},
                                              {DType::bf16, DType::bf16},
                                              {DType::f16, DType::f16},
                                              {DType::f32, DType::bf16},
                                              {DType::f32, DType::f16}};
constexpr int64_t kElements = 5 * 16384 + 81;  // a task for each of five threads, and an odd rest
constexpr int64_t kCuts[] = {0, 64 * 7, 2 * 16384 + 64 * 3, kElements};

enum Factor : size_t {
  kIsa,
  kThread,
  kNode,
  kPool,
  kFormat,
  kType,
  kDecay,
  kPrediction,
  kPlace,
  kCalls,
  kAll
};

bool possible(const ValuePair& pair) {
  const auto [a, x, b, y] = pair;
  if (a != kFormat || b != kType) return true;
  return all_state_formats()[x].master == MasterFormat::fp32 || kTypes[y].second == DType::bf16;
}

Factors factors() {
  std::vector<size_t> values(kAll, 2);  // the last three: without and with
  values[kIsa] = usable_isas().size();
  values[kThread] = std::size(kThreads);
  values[kNode] = std::size(kNodes);
  values[kPool] = pool_kinds().size();
  values[kFormat] = all_state_formats().size();
  values[kType] = std::size(kTypes);
  values[kDecay] = 3;
  return {values, possible};
}

std::vector<TableRow> table() { return CoveringTable(factors()).rows(); }

AdamCase case_of(const TableRow& row) {
  const auto& [grad, weight] = kTypes[row[kType]];
  return {grad, weight, static_cast<Decay>(row[kDecay]), kPredictions[row[kPrediction]],
          all_state_formats()[row[kFormat]]};
}

/// Elements [begin, begin + count) of a pass.
AdamSpans part_of(const AdamSpans& all, int64_t begin, int64_t count) {
  AdamSpans part = all;
  const auto of = [&](StatePlane plane, std::span<std::byte> bytes) {
    return bytes.subspan(
        plane_bytes(all.states.format, plane, begin),
        plane_bytes(all.states.format, plane, begin + count) - plane_bytes(all.states.format, plane, begin));
  };
  part.states = {all.states.format,
                 of(StatePlane::master, all.states.master),
                 of(StatePlane::moment1, all.states.moment1),
                 of(StatePlane::moment2, all.states.moment2),
                 of(StatePlane::scale1, all.states.scale1),
                 of(StatePlane::scale2, all.states.scale2)};
  for (Tensor* plane : {&part.grad, &part.weight_out, &part.upper_in, &part.upper_out})
    if (!plane->empty()) *plane = plane->flat(begin, count);
  return part;
}

/// All that a pass has written, wherever it went.
std::vector<std::byte> written(const AdamSpans& spans) {
  std::vector<std::byte> bytes;
  const auto add = [&](std::span<const std::byte> plane) {
    bytes.insert(bytes.end(), plane.begin(), plane.end());
  };
  const AdamStates& s = spans.states;
  for (const auto& plane : {s.master, s.moment1, s.moment2, s.scale1, s.scale2}) add(plane);
  for (const Tensor& plane : {spans.weight_out, spans.upper_out})
    if (!plane.empty()) add({plane.bytes_at(0), plane.bytes()});
  return bytes;
}

/// One scalar thread, one call, and weights to a plane of their own.
std::vector<std::byte> wanted_bits(const Planes& start, const AdamCase& c) {
  Planes planes = start;
  const AdamSpans spans = planes.spans(false);
  adam(*make_workers(PoolKind::plain, 1, {}), Isa::scalar, spans, c.decay, test_scalars(), c.prediction,
       test_place());
  return written(spans);
}

std::vector<std::byte> bits_of(const Planes& start, const AdamCase& c, const TableRow& row,
                               Workers& workers) {
  Planes planes = start;
  const AdamSpans spans = planes.spans(row[kPlace] == 1);
  const auto run = [&](int64_t begin, int64_t end) {
    adam(workers, usable_isas()[row[kIsa]], part_of(spans, begin, end - begin), c.decay, test_scalars(),
         c.prediction, test_place(begin));
  };
  if (row[kCalls] == 0)
    run(0, kElements);
  else
    for (size_t i = std::size(kCuts) - 1; i > 0; --i) run(kCuts[i - 1], kCuts[i]);
  return written(spans);
}

std::unique_ptr<Workers> workers_of(const TableRow& row) {
  Topology topology;
  for (int node = 0; node < kNodes[row[kNode]]; ++node) topology.nodes.push_back({node, 2});
  topology.threads = 2 * kNodes[row[kNode]];
  return make_workers(pool_kinds()[row[kPool]], kThreads[row[kThread]], topology);
}

/// Whether the row's threads are to be spread over arenas of several nodes.
bool binds(const TableRow& row) {
  return pool_kinds()[row[kPool]] == PoolKind::tbb && !kAddressSanitizer && row[kNode] > 0 &&
         row[kThread] > 0;
}

/// How many rows with so many nodes (a value's number) give other bits than one scalar thread. Says which.
int wrong_rows(size_t node) {
  int wrong = 0, rows = 0;
  for (const TableRow& row : table()) {
    if (row[kNode] != node) continue;
    ++rows;
    const AdamCase c = case_of(row);
    Planes start(kElements, 0, c);
    fill(start);
    const auto workers = workers_of(row);
    if (binds(row) && workers->describe().find(" on node 1") == std::string::npos) return 98;
    if (same_bits(wanted_bits(start, c), bits_of(start, c, row, *workers))) continue;
    ++wrong;
    fmt::print(stderr, "{}, {}, {}, {}\n", name_of(usable_isas()[row[kIsa]]), workers->describe(), label(c),
               row[kCalls] == 0 ? "one call" : "several calls");
  }
  return rows == 0 ? 99 : wrong;
}

/// oneTBB reads the machine's nodes once, so each number of nodes has its own process.
[[noreturn]] void exit_with_wrong_rows(size_t node) {
  setenv("HWLOC_SYNTHETIC", fmt::format("numa:{} core:2 pu:1", kNodes[node]).c_str(), 1);
  std::_Exit(wrong_rows(node));
}

void expect_no_wrong_row(size_t node) {
  if (usual_pool() == PoolKind::plain) {
    EXPECT_EQ(wrong_rows(node), 0);
    return;
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_wrong_rows(node), testing::ExitedWithCode(0), "");
}

TEST(IdentityAdamTableDeathTest, EveryRowOfOneNodeHasTheBitsOfOneScalarThread) { expect_no_wrong_row(0); }
TEST(IdentityAdamTableDeathTest, EveryRowOfTwoNodesHasTheBitsOfOneScalarThread) { expect_no_wrong_row(1); }
TEST(IdentityAdamTableDeathTest, EveryRowOfFourNodesHasTheBitsOfOneScalarThread) { expect_no_wrong_row(2); }

TEST(IdentityAdamTable, HasEveryPairOfValuesOfTwoFactors) {
  const Factors all = factors();
  const std::vector<TableRow> rows = table();
  for (const ValuePair& pair : all.pairs()) {
    const auto [a, x, b, y] = pair;
    EXPECT_TRUE(std::any_of(
        rows.begin(), rows.end(),
        [&, a = a, x = x, b = b, y = y](const TableRow& row) { return row[a] == x && row[b] == y; }))
        << "factor " << a << " value " << x << " beside factor " << b << " value " << y;
  }
  for (const TableRow& row : rows) EXPECT_TRUE(possible({kFormat, row[kFormat], kType, row[kType]}));
  EXPECT_LT(rows.size(), 100u);  // of some ten thousand combinations
}

TEST(IdentityAdamTable, NoticesOtherRandomBits) {  // the comparison has teeth
  const TableRow row(kAll, 0);
  AdamCase c = case_of(row);
  c.format = {MasterFormat::fp32, MomentFormat::bf16};
  Planes start(kElements, 0, c);
  fill(start);
  Planes planes = start;
  const AdamSpans spans = planes.spans(false);
  adam(*workers_of(row), Isa::scalar, spans, c.decay, test_scalars(), c.prediction, test_place(64));
  EXPECT_FALSE(same_bits(wanted_bits(start, c), written(spans)));
}

}  // namespace
}  // namespace tandem
