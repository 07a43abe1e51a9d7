#pragma once
// What the fake cuBLASLt keeps behind the opaque pointers.
#include <map>
#include <mutex>

#include "tests/cuda_fake/cublaslt.h"

namespace tandem::cuda_fake {

struct LtHandle {};
struct LtDesc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t turn_a = CUBLAS_OP_N, turn_b = CUBLAS_OP_N;
};
/// Column-major [rows, columns]; ld: elements from column to column.
struct LtLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
};
struct LtPreference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  ///< A, B, C, D
};

/// Live objects of one kind by their address. Thread-safe.
template <class T>
class LtObjects {
 public:
  void* add(T value) {
    const std::scoped_lock lock(mutex_);
    auto object = std::make_unique<T>(value);
    void* const address = object.get();
    live_.emplace(address, std::move(object));
    return address;
  }
  /// nullptr unless it is alive and of this kind.
  [[nodiscard]] T* find(const void* address) {
    const std::scoped_lock lock(mutex_);
    const auto at = live_.find(address);
    return at == live_.end() ? nullptr : at->second.get();
  }
  [[nodiscard]] bool remove(const void* address) {
    const std::scoped_lock lock(mutex_);
    return live_.erase(address) == 1;
  }
  [[nodiscard]] size_t count() {
    const std::scoped_lock lock(mutex_);
    return live_.size();
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<T>> live_;
};

template <class T>
LtObjects<T>& lt_objects() {
  static LtObjects<T> objects;
  return objects;
}

/// One product as asked for; dimensions are those after transposing.
struct LtProduct {
  const LtDesc* desc;
  const LtLayout *a, *b, *c, *d;
  [[nodiscard]] uint64_t m() const { return desc->turn_a == CUBLAS_OP_N ? a->rows : a->columns; }
  [[nodiscard]] uint64_t k() const { return desc->turn_a == CUBLAS_OP_N ? a->columns : a->rows; }
  [[nodiscard]] uint64_t n() const { return desc->turn_b == CUBLAS_OP_N ? b->columns : b->rows; }
};
/// Finds the objects; a member that is not alive is nullptr.
LtProduct lt_product(const void* desc, const void* a, const void* b, const void* c, const void* d);
/// Live objects, supported types, shapes that meet.
cublasStatus_t lt_complaint(const LtProduct& product);
size_t lt_size(cudaDataType_t type);

/// The fake's algorithm that this descriptor holds; nullptr if the heuristic offers none such.
const LtAlgorithm* lt_algorithm(const cublasLtMatmulAlgo_t& algo);

cublasStatus_t lt_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t preference, int requested,
                            cublasLtMatmulHeuristicResult_t results[], int* count);
cublasStatus_t lt_algo_init(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                            cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                            cublasLtMatmulAlgo_t* algo);
cublasStatus_t lt_algo_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                             const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result);
cublasStatus_t lt_config_set(cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                             const void* value, size_t bytes);
cublasStatus_t lt_config_get(const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                             void* value, size_t bytes, size_t* written);
cublasStatus_t lt_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                         cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                         const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                         cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                         size_t workspace_bytes, cudaStream_t stream);

}  // namespace tandem::cuda_fake
