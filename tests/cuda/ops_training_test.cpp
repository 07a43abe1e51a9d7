// Whole training steps on the CUDA device: streams, fences, lanes, copies, kernels and products together, in
// whatever order the fake runtime's seed allows. Bits must not depend on it, nor on the schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/cuda/ops_rig.h"
#include "tests/offload/engine_rig.h"

namespace tandem::gpu::cuda {
namespace {

using tandem::testing::EngineOptions;
using tandem::testing::Outcome;
using tandem::testing::Where;

constexpr int64_t kSteps = 4;

EngineOptions options_of(DType dtype, Where where) {
  EngineOptions options;
  options.arch.hidden = 32;
  options.arch.intermediate = 64;
  options.arch.heads = 2;
  options.arch.kv_heads = 1;
  options.arch.vocab = 256;
  options.dtype = dtype;
  options.where = where;
  options.clip = 0.5;
  return options;
}

/// What training comes to on the CUDA device, on a fake card of its own.
Outcome train(EngineOptions options, Schedule schedule, uint64_t seed,
              const CublasLt& lt = cuda_fake::cublas_lt()) {
  options.policy.schedule = schedule;
  const FakeSession session({.seed = seed});
  cuda_fake::run_kernels_in_the_emulator(seed);
  options.open = [&lt](Workers&) { return std::make_unique<CudaDevice>(CudaDeviceOptions{}, ops_with(lt)); };
  return tandem::testing::run_engine(options, kSteps);
}

/// The largest relative difference of a step's loss.
double loss_difference(const Outcome& a, const Outcome& b) {
  double largest = 0;
  for (size_t step = 0; step < kSteps; ++step)
    largest = std::max(largest, std::abs(a.decisions[step].loss / b.decisions[step].loss - 1));
  return largest;
}

/// Of a few steps on two devices, which add in other orders: some roundings of the activations.
double tolerance(DType dtype) { return dtype == DType::f32 ? 2e-6 : 1e-3; }

class FakeCudaOpsTraining : public ::testing::TestWithParam<std::tuple<DType, Where>> {
 protected:
  const DType dtype_ = std::get<0>(GetParam());
  const EngineOptions options_ = options_of(dtype_, std::get<1>(GetParam()));
};

TEST_P(FakeCudaOpsTraining, ExactIsSynchronousToTheBitAndNearTheHostDevice) {
  const Outcome synchronous = train(options_, Schedule::synchronous, 1);
  EXPECT_EQ(tandem::testing::difference(synchronous, train(options_, Schedule::exact, 2)), "");
  EXPECT_LT(loss_difference(synchronous, tandem::testing::run_engine(options_, kSteps)), tolerance(dtype_));
}

TEST_P(FakeCudaOpsTraining, DelayedDoesNotDependOnWhatRunsFirst) {
  EXPECT_EQ(tandem::testing::difference(train(options_, Schedule::delayed, 3),
                                        train(options_, Schedule::delayed, 4)),
            "");
}

INSTANTIATE_TEST_SUITE_P(Cuda, FakeCudaOpsTraining,
                         ::testing::Values(std::tuple{DType::f32, Where::host},
                                           std::tuple{DType::bf16, Where::host},
                                           std::tuple{DType::bf16, Where::device},
                                           std::tuple{DType::f16, Where::mixed}));

TEST(FakeCudaOpsStreamedWeights, ChangeNoBit) {
  EngineOptions options = options_of(DType::bf16, Where::host);
  options.arch.layers = 3;
  const Outcome resident = train(options, Schedule::exact, 5);
  options.window = 2;
  EXPECT_EQ(tandem::testing::difference(resident, train(options, Schedule::exact, 6)), "");
}

int calls = 0, left_out = -1;
cublasStatus_t forgetful(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                         cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                         const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                         cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                         size_t bytes, cudaStream_t stream) {
  if (calls++ == left_out) return CUBLAS_STATUS_SUCCESS;
  return cuda_fake::cublas_lt().matmul(handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                                       d_layout, algo, workspace, bytes, stream);
}

/// Proves that the comparison with the host device has teeth: one product of the third step is left out.
TEST(FakeCudaOpsTrainingFaults, NoticesOneProductThatIsLeftOut) {
  const EngineOptions options = options_of(DType::f32, Where::host);
  CublasLt lt = cuda_fake::cublas_lt();
  lt.matmul = forgetful;
  calls = 0;
  left_out = -1;
  const Outcome whole = train(options, Schedule::synchronous, 1, lt);
  const int per_step = std::exchange(calls, 0) / static_cast<int>(kSteps);
  ASSERT_GT(per_step, 40);
  for (const int product : {1, per_step / 2, per_step - 1}) {
    left_out = 2 * per_step + product;
    calls = 0;
    EXPECT_GT(loss_difference(train(options, Schedule::synchronous, 1, lt), whole), tolerance(DType::f32))
        << product << " of " << per_step;
  }
}

}  // namespace
}  // namespace tandem::gpu::cuda
