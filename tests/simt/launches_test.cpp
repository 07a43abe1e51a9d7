// What gpu/kernels/launches.h launches: nothing for empty tensors, and grids that a card takes for the
// largest models.
#include <gtest/gtest.h>

#include <string>

#include "gpu/kernels/launches.h"

namespace tandem::simt {
namespace {

namespace kernels = gpu::TANDEM_SIMT;

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

/// Every op over [rows, width] activations, or as many elements; no memory is touched.
GridLog launches_of(int64_t rows, int64_t width) {
  GridLog on;
  float* const f = nullptr;
  float sums = 0;  // a gradient that is wanted
  const int64_t n = rows * width;
  const DType act = DType::bf16;
  kernels::launch_embedding_forward(on, f, f, nullptr, act, rows, width);
  kernels::launch_embedding_backward(on, f, f, nullptr, act, rows, width);
  kernels::launch_add_bias(on, f, f, act, rows, width);
  kernels::launch_bias_backward(on, &sums, f, act, rows, width, f);
  kernels::launch_rms_norm_forward(on, f, f, f, f, act, rows, width, 0);
  kernels::launch_rms_norm_backward(on, f, &sums, f, f, f, f, f, act, rows, width, f);
  kernels::launch_layer_norm_forward(on, f, f, f, f, f, f, act, rows, width, 0);
  kernels::launch_layer_norm_backward(on, f, &sums, &sums, f, f, f, f, f, f, act, rows, width, f);
  kernels::launch_rope(on, f, f, f, f, act, 1, 1, rows, width / 128, 128);
  kernels::launch_swiglu_forward(on, f, f, f, act, n);
  kernels::launch_swiglu_backward(on, f, f, f, f, f, act, n);
  kernels::launch_gelu_forward(on, f, f, act, n);
  kernels::launch_gelu_backward(on, f, f, f, act, n);
  kernels::launch_add(on, f, f, f, act, n);
  kernels::launch_cast(on, f, act, f, DType::f32, n);
  kernels::launch_round_weights(on, f, act, f, n);
  kernels::launch_softmax_cross_entropy(on, nullptr, f, act, f, nullptr, 1, rows, width, f);
  kernels::launch_adam(on, f, act, f, act, Decay::decoupled, {f, f, f, n, {}, 0});
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
    EXPECT_EQ(log.entries.size(), 26u);
    for (const auto& [name, grid] : log.entries) {
      EXPECT_GE(grid.blocks, 1) << name;
      EXPECT_LE(grid.blocks, 2147483647) << name;
      EXPECT_TRUE(grid.threads >= 32 && grid.threads <= gpu::kBlockThreads && grid.threads % 32 == 0) << name;
    }
  }
}

}  // namespace
}  // namespace tandem::simt
