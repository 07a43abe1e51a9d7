// Whole training runs on the CUDA device, its kernels the host device's: bit for bit what the host device
// gives, whatever the seed of the scheduler, with every wait in its place.
#include "gpu/host/host_ops.h"
#include "tests/cuda/cuda_rig.h"
#include "tests/cuda/host_kernels.h"
#include "tests/offload/chaos_setups.h"

namespace tandem::gpu::cuda {
namespace {

using testing::ChaosRun;
using testing::ChaosSetup;

/// The setup's run on the CUDA device; no fault may have been found.
ChaosRun on_cuda(const ChaosSetup& setup, uint64_t seed) {
  const FakeSession session({.seed = seed, .memory = testing::kDeviceMemory});
  std::unique_ptr<HostKernels> kernels;
  testing::EngineOptions options = setup.options;
  options.open = [&kernels](Workers& workers) {
    kernels = std::make_unique<HostKernels>(workers);
    const auto make_ops = [&kernels](CudaDevice& device) {
      kernels->serve(device);
      return make_host_ops(*kernels);
    };
    return std::make_unique<CudaDevice>(CudaDeviceOptions{.pin_chunk = size_t{1} << 14}, make_ops);
  };
  testing::EngineRig rig(options);
  return run_chaos(setup, rig);
}

class FakeCudaTraining : public ::testing::TestWithParam<ChaosSetup> {};

TEST_P(FakeCudaTraining, GivesTheBitsOfTheHostDeviceUnderAnySeed) {
  const ChaosRun host = testing::run_chaos(GetParam(), std::nullopt);
  for (uint64_t seed = 0; seed < 3; ++seed)
    EXPECT_EQ(testing::difference(on_cuda(GetParam(), seed), host), "") << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Setups, FakeCudaTraining, ::testing::ValuesIn(testing::chaos_setups()),
                         [](const auto& setup) { return setup.param.name; });

}  // namespace
}  // namespace tandem::gpu::cuda
