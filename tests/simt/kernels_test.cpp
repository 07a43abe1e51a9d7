// Every kernel's own source in the emulator, from the one table of op cases: against double, against the
// host's bits where the order of the arithmetic is the contract, and with barriers and masks broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cpu_adam/plain_pool.h"
#include "source_mutants.h"  // of the build folder
#include "tests/gpu/op_cases_host.h"
#include "tests/simt/emulated_ops.h"

namespace tandem::simt {
namespace {

using op_cases::OpCase;
using Bytes = std::vector<std::vector<std::byte>>;

std::vector<std::string> ops_with_kernels() {
  std::vector<std::string> names = op_cases::op_names();
  std::erase_if(names, [](const std::string& op) {
    return std::ranges::find(kOpsWithoutKernels, op) != std::end(kOpsWithoutKernels);
  });
  return names;
}

/// "" if the outputs are what the case allows; else the first complaint.
std::string complaint(const OpCase& op_case, const Bytes& after) {
  for (size_t i = 0; i < after.size(); ++i) {
    const std::string text = op_cases::complaint(op_case.tensors[i], after[i]);
    if (!text.empty()) return text;
  }
  return "";
}

TEST(SimtOps, EveryOpOfTheTableHasAKernelOrIsNamed) {
  std::set<std::string_view> table;
  const std::vector<std::string> names = op_cases::op_names();
  table.insert(names.begin(), names.end());
  for (const std::string_view op : kOpsWithoutKernels) EXPECT_TRUE(table.contains(op)) << op;
  EXPECT_EQ(ops_with_kernels().size() + std::size(kOpsWithoutKernels), names.size());
}

class SimtKernels : public testing::TestWithParam<std::string> {};

TEST_P(SimtKernels, EqualDoubleWithinTheirRoundings) {
  const auto ops = simt_emulated::make_ops({});
  for (const OpCase& op_case : op_cases::cases_of(GetParam()))
    EXPECT_EQ(complaint(op_case, op_cases::run_at_once(*ops, op_case)), "") << op_case.name;
}

/// Where a tensor lies decides how packs are loaded, and the seed when each block and thread runs: neither
/// changes a bit.
TEST_P(SimtKernels, GiveTheSameBitsAtEveryAddressAndInEveryOrder) {
  const auto ops = simt_emulated::make_ops({}), later = simt_emulated::make_ops({.seed = 7});
  for (const OpCase& op_case : op_cases::cases_of(GetParam()))
    EXPECT_EQ(op_cases::run_at_once(*ops, op_case), op_cases::run_at_once(*later, op_case, 1))
        << op_case.name;
}

INSTANTIATE_TEST_SUITE_P(Simt, SimtKernels, testing::ValuesIn(ops_with_kernels()),
                         [](const auto& info) { return info.param; });

/// True if some case of the op ends with a fault or a wrong result.
bool notices(const std::string& op, Ops& ops) {
  return std::ranges::any_of(op_cases::cases_of(op), [&](const OpCase& op_case) {
    try {
      return !complaint(op_case, op_cases::run_at_once(ops, op_case)).empty();
    } catch (const Fault&) {
      return true;
    }
  });
}

/// The ops that use each place where threads meet.
using Users = std::map<std::string, std::vector<std::string>>;
void expect_noticed(const Users& users, Mutant::Kind kind, const char* what) {
  EXPECT_FALSE(users.empty());
  for (const auto& [site, ops] : users) {
    const auto broken = simt_emulated::make_ops({.mutant = Mutant{kind, site}});
    EXPECT_TRUE(std::ranges::any_of(ops, [&](const std::string& op) { return notices(op, *broken); }))
        << what << " at " << site;
  }
}

/// One place in the kernels' source after the other: each barrier left out, each mask without its upper half.
TEST(SimtMutants, BrokenBarriersAndMasksAreNoticed) {
  Users barriers, shuffles;
  for (const std::string& op : ops_with_kernels()) {
    Sites sites;
    const auto ops = simt_emulated::make_ops({.sites = &sites});
    for (const OpCase& op_case : op_cases::cases_of(op)) op_cases::run_at_once(*ops, op_case);
    for (const std::string& site : sites.barriers) barriers[site].push_back(op);
    for (const std::string& site : sites.shuffles) shuffles[site].push_back(op);
  }
  expect_noticed(barriers, Mutant::Kind::barrier_left_out, "no barrier");
  expect_noticed(shuffles, Mutant::Kind::mask_without_upper_lanes, "half a mask");
}

TEST(SimtMutants, PlantedFaultsInTheSourceAreNoticed) {
  for (const SourceMutant& mutant : kSourceMutants)
    EXPECT_TRUE(notices(mutant.op, *mutant.make_ops({}))) << mutant.name << " in " << mutant.op;
}

/// Ops whose order of arithmetic is a contract: the host's bits.
class SimtIdentity : public testing::TestWithParam<std::string> {};

TEST_P(SimtIdentity, GivesTheHostsBits) {
  const auto workers = make_plain_pool(1);
  op_cases::HostRunner host(*workers, *gpu::row_kernels().front());
  const auto ops = simt_emulated::make_ops({});
  for (const OpCase& op_case : op_cases::cases_of(GetParam())) {
    const Bytes expected = host.run(op_case), got = op_cases::run_at_once(*ops, op_case);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], expected[i]) << op_case.name << ", " << op_case.tensors[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Simt, SimtIdentity,
                         testing::Values("adam", "add", "add_bias", "embedding_backward", "embedding_forward",
                                         "rope", "round_weights", "sum_of_squares"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::simt
