#pragma once
// Where, how and on how many threads a step without delay may run, and what of it may overlap: none of it
// changes a bit. The pairwise table and the full product of these ways; the sums whose bits they must not
// change.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/offload/engine_rig.h"

namespace tandem::testing {

/// What may differ.
struct Way {
  Where where;
  int threads;
  PoolKind pool;
  Order order;
  Keep keep;
  Schedule schedule;
  int window;     ///< of streamed weights; 0: resident
  int nodes;      ///< NUMA nodes of the machine: oneTBB has an arena for each, bound to it
  uint64_t seed;  ///< chaos mode with that seed; 0: threads
};
constexpr size_t kColumns = 9;
/// How many values each column has.
constexpr std::array<size_t, kColumns> kValues{4, 3, 2, 2, 3, 2, 3, 2, 2};
/// A way's columns, each as the number of its value, from 0.
std::array<size_t, kColumns> columns_of(const Way& way);
std::string name_of(const Way& way);

/// Any two values of any two columns meet in some row.
const std::vector<Way>& pairwise_ways();
/// Every combination.
std::vector<Way> all_ways();

enum class Family : uint8_t { llama, gpt2, qwen2, qwen3 };

/// What decides the numbers.
struct Sum {
  Family family;
  DType dtype;
  int64_t micro_batches;
  bool clipped, tied;
};
std::string name_of(const Sum& sum);
/// A family for each dtype, number of micro-batches and clipping: of family and any other of the five every
/// pair.
std::vector<Sum> pairwise_sums();
std::vector<Sum> all_sums();

constexpr int64_t kIdentitySteps = 12;
/// The reference: one thread, the optimizer on the device, everything kept.
EngineOptions reference_of(const Sum& sum);
EngineOptions options_of(EngineOptions reference, const Way& way);

/// How many of the ways give other bits than expected; each is named on stderr. Of several nodes the
/// machine (HWLOC_SYNTHETIC) must have been set before oneTBB looked at it.
int wrong_ways(const Sum& sum, const std::vector<Way>& ways, const Outcome& expected);
/// The same in a process of its own, on a machine with two nodes; its status is the number.
[[noreturn]] void exit_with_wrong_ways(const Sum& sum, const std::vector<Way>& ways);
/// Expects none, in this process where nobody binds threads, else in one of its own.
void expect_no_wrong_way(const Sum& sum, const std::vector<Way>& ways);

}  // namespace tandem::testing
