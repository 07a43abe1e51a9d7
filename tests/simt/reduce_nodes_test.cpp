// The tree above the leaves of the gradient norm, for more nodes than one block adds up.
#include <gtest/gtest.h>

#include "core/math/reduce_tree.h"
#include "gpu/kernels/launches.h"
#include "tests/gpu/op_cases.h"
#include "tests/simt/emulator.h"

namespace tandem::simt {
namespace {

namespace kernels = gpu::TANDEM_SIMT;

/// Launches with one output and one scratch.
struct TreeLauncher {
  Emulator emulator;
  std::vector<GlobalMemory> memory;
  template <class... Parameters, class... Arguments>
  void operator()(const char* name, gpu::Grid grid, void (*kernel)(Parameters...), Arguments... arguments) {
    emulator.run({name, grid, memory}, [&] { kernel(arguments...); });
  }
};

TEST(SimtIdentityOfTheTree, EqualsTheHostsOrderForAnyNumberOfLeaves) {
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1023}, kernels::kTreeNodes, kernels::kTreeNodes + 1,
        2 * kernels::kTreeNodes + 77, 5 * kernels::kTreeNodes + 511}) {
    const op_cases::Values sums = op_cases::random_values(count, DType::f64, 3);
    std::vector<double> nodes(static_cast<size_t>(kernels::sum_of_squares_scratch(count * kReduceLeaf)) /
                              sizeof(double));
    for (size_t i = 0; i < sums.size(); ++i) {
      nodes[2 * i] = 1 + sums[i] / 3;  // roundings everywhere
      nodes[2 * i + 1] = static_cast<double>(i % 3);
    }
    std::vector<double> expected[2];
    for (size_t i = 0; i < 2 * sums.size(); ++i) expected[i % 2].push_back(nodes[i]);
    double out[2] = {7, 7};
    TreeLauncher on;
    on.memory = {{"out", out, sizeof out, true},
                 {"nodes", nodes.data(), nodes.size() * sizeof(double), true}};
    kernels::launch_reduce_nodes(on, out, nodes.data(), count);
    for (size_t part = 0; part < 2; ++part)
      EXPECT_EQ(out[part], reduce_leaves(expected[part].data(), count)) << count << " leaves";
  }
}

}  // namespace
}  // namespace tandem::simt
