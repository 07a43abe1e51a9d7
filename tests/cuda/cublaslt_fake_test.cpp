// What the fake cuBLASLt refuses, so that tests which pass on it mean something.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/cuda_fake/cublaslt.h"

namespace tandem::cuda_fake {
namespace {

const gpu::cuda::CublasLt& lt() { return cublas_lt(); }

/// y[2, 3] = x[2, 4] w[3, 4]^T in bf16, as it should be asked for; each test spoils one thing.
class FakeCudaLt : public testing::Test {
 protected:
  FakeCudaLt() {
    EXPECT_EQ(lt().create(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(lt().desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    const int32_t turn = CUBLAS_OP_T;
    EXPECT_EQ(lt().desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof turn), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(lt().layout_create(&a_, CUDA_R_16BF, 4, 3, 4), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(lt().layout_create(&b_, CUDA_R_16BF, 4, 2, 4), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(lt().layout_create(&c_, CUDA_R_16BF, 3, 2, 3), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(lt().preference_create(&preference_), CUBLAS_STATUS_SUCCESS);
    algo_ = algorithm(5);
  }
  ~FakeCudaLt() override {
    for (const cublasLtMatrixLayout_t layout : {a_, b_, c_}) (void)lt().layout_destroy(layout);
    (void)lt().desc_destroy(desc_);
    (void)lt().preference_destroy(preference_);
    (void)lt().destroy(handle_);
    EXPECT_EQ(lt_objects_alive(), 0u);
  }
  /// The heuristic's list for these addresses.
  std::vector<cublasLtMatmulHeuristicResult_t> offered() {
    std::array<cublasLtMatmulHeuristicResult_t, 10> results{};
    int count = 0;
    EXPECT_EQ(lt().heuristic(handle_, desc_, a_, b_, c_, c_, preference_, 10, results.data(), &count),
              CUBLAS_STATUS_SUCCESS);
    return {results.begin(), results.begin() + count};
  }
  cublasLtMatmulAlgo_t algorithm(size_t number) { return offered().at(number).algo; }
  cublasStatus_t multiply() {
    const float one = 1, zero = 0;
    return lt().matmul(handle_, desc_, &one, a_data_, a_, b_data_, b_, &zero, c_data_, c_, c_data_, c_,
                       &algo_, workspace_, workspace_bytes_, nullptr);
  }
  void replace(cublasLtMatrixLayout_t& layout, cudaDataType_t type, uint64_t rows, uint64_t columns,
               int64_t ld) {
    (void)lt().layout_destroy(layout);
    EXPECT_EQ(lt().layout_create(&layout, type, rows, columns, ld), CUBLAS_STATUS_SUCCESS);
  }

  alignas(16) std::array<uint16_t, 64> memory_{};
  alignas(16) std::array<std::byte, 64> little_{};
  std::vector<double> much_ = std::vector<double>(1 << 17);  // 1 MiB
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulAlgo_t algo_{};
  void *a_data_ = &memory_[0], *b_data_ = &memory_[16], *c_data_ = &memory_[32];
  void* workspace_ = little_.data();
  size_t workspace_bytes_ = sizeof little_;
};

TEST_F(FakeCudaLt, MultipliesWhatIsRight) {
  memory_.fill(0x4040);  // 3
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(memory_[32 + i], 0x4210) << i;  // 4 * 3 * 3 = 36
  EXPECT_EQ(memory_[38], 0x4040);
}

TEST_F(FakeCudaLt, RefusesObjectsThatAreNotThoseAsked) {
  const cublasLtHandle_t handle = handle_;
  handle_ = reinterpret_cast<cublasLtHandle_t>(desc_);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_INITIALIZED);
  handle_ = handle;
  const cublasLtMatmulDesc_t desc = desc_;
  desc_ = reinterpret_cast<cublasLtMatmulDesc_t>(a_);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
  desc_ = desc;
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt().layout_destroy(a_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt().layout_destroy(a_), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCudaLt, RefusesTypesAndShapesThatDontMeet) {
  replace(b_, CUDA_R_16F, 4, 2, 4);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
  replace(b_, CUDA_R_16BF, 5, 2, 5);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
  replace(b_, CUDA_R_16BF, 4, 2, 3);  // columns that overlap
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
  replace(b_, CUDA_R_16BF, 4, 2, 4);
  replace(c_, CUDA_R_16F, 3, 2, 3);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
  replace(c_, CUDA_R_16BF, 2, 3, 2);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCudaLt, RefusesTf32) {
  (void)lt().desc_destroy(desc_);
  EXPECT_EQ(lt().desc_create(&desc_, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(multiply(), CUBLAS_STATUS_SUCCESS);
}

TEST_F(FakeCudaLt, RefusesAddressesThatTheAlgorithmCantTake) {
  algo_ = algorithm(4);  // 16 bytes at a time
  workspace_ = much_.data();
  workspace_bytes_ = much_.size() * sizeof(double);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(workspace_) % 16, 0u);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  b_data_ = &memory_[17];
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
  algo_ = algorithm(5);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  b_data_ = reinterpret_cast<std::byte*>(&memory_[16]) + 1;
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(FakeCudaLt, RefusesTooLittleWorkspace) {
  algo_ = algorithm(4);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCudaLt, RefusesAlgorithmsThatItNeverOffers) {
  const uint32_t tile = 16;
  EXPECT_EQ(lt().config_set(&algo_, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
  algo_ = {};
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
  algo_ = algorithm(3);  // offered with a state that says no
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(FakeCudaLt, OffersAlgorithmsForTheAlignmentAsked) {
  EXPECT_EQ(offered().size(), 6u);
  const uint32_t bytes = 2;
  EXPECT_EQ(
      lt().preference_set(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &bytes, sizeof bytes),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(offered().size(), 5u);
}

}  // namespace
}  // namespace tandem::cuda_fake
