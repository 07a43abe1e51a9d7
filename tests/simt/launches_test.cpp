// What gpu/kernels/launches.h launches: nothing for empty tensors, and grids that a card takes for the
// largest models.
#include <gtest/gtest.h>

#include <string>

#include "tests/simt/every_launch.h"

namespace tandem::simt {
namespace {

/// Notes grids instead of launching them.
struct GridLog {
  struct Entry {
    std::string name;
    gpu::Grid grid;
  };
  std::vector<Entry> entries;
  template <class... Parameters, class... Arguments>
  void operator()(const char* name, gpu::Grid grid, void (*)(Parameters...), Arguments...) {
    entries.push_back({name, grid});
  }
};

GridLog launches_of(int64_t rows, int64_t width) {
  GridLog on;
  launch_each(on, DType::bf16, rows, width, 128);
  return on;
}

TEST(SimtLaunches, EmptyTensorsLaunchNothing) {
  for (const auto& [rows, width] : {std::pair{0, 128}, {16, 0}, {0, 0}})
    for (const auto& [name, grid] : launches_of(rows, width).entries)
      ADD_FAILURE() << name << " with " << grid.blocks << " blocks for " << rows << " x " << width;
}

/// The smallest op has a block, the largest (a vocabulary of 256 Ki, 16 Ki wide) no more than the 2^31 - 1 of
/// a grid.
TEST(SimtLaunches, GridsAreWithinTheCardsLimits) {
  for (const auto& [rows, width] : {std::pair{1, 128}, {262144, 16384}}) {
    const GridLog log = launches_of(rows, width);
    EXPECT_EQ(log.entries.size(), 36u);
    for (const auto& [name, grid] : log.entries) {
      EXPECT_GE(grid.blocks, 1) << name;
      EXPECT_LE(grid.blocks, 2147483647) << name;
      EXPECT_TRUE(grid.threads >= 32 && grid.threads <= gpu::kBlockThreads && grid.threads % 32 == 0) << name;
    }
  }
}

}  // namespace
}  // namespace tandem::simt
