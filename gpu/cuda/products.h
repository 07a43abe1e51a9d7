#pragma once
// Matrix products by cuBLASLt: fp32 accumulation, never TF32, one rounding at the end. Row-major arrays are
// their transposes in cuBLASLt's column-major terms, so c = op(a) op(b) is asked for as c^T = op(b)^T
// op(a)^T: our b is its A, our a its B, and the leading dimension of each is its row-major width. No
// epilogue: a fused bias would be added before the rounding that the contract has between the two.
//
// Which algorithm: the table's entry for the product, else the first of the heuristic's list that gives the
// same bits in every run and rounds once. That leaves out split-K which reduces in place (the order of
// arrival decides) or in the output's type (more roundings); split-K through fp32 partial sums in the
// workspace, added in a step of its own, stays. The choice is a function of ProductKey, the library's version
// and the architecture's workspace; it is made once per key.
#include <memory>
#include <mutex>

#include "core/base/tensor.h"
#include "core/device/ops.h"
#include "gpu/cuda/algorithms.h"
#include "gpu/cuda/cublas_lt.h"

namespace tandem::gpu::cuda {

/// Bytes of device memory that the products of one stream need, at a multiple of 256: 32 MiB from compute
/// capability 9.0 (90) on, else 8 MiB. Never a function of the shape: algorithms are chosen within it.
size_t product_workspace_bytes(int capability);

/// Thread-safe. Enqueues only; c, a and b are device memory at multiples of 16 bytes, or rows of such
/// tensors.
class Products {
 public:
  /// capability: of the current card, 90 for 9.0. The table's entries for other cards are kept, unused.
  /// Error(failed) if the library does not start.
  Products(const CublasLt& lt, int capability, AlgorithmTable table = {});
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// c = op(a) op(b), or added to it; shapes checked by the caller. Nothing happens where c is empty. Error
  /// (failed) if the library refuses the table's entry (with its line) or has no algorithm for this product.
  void enqueue(cudaStream_t stream, void* workspace, Storage storage, Tensor c, Tensor a, Tensor b,
               Into into);

  /// What has been chosen and given so far.
  [[nodiscard]] AlgorithmTable algorithms() const;

 private:
  struct Plan;
  [[nodiscard]] const Plan& plan_of(const ProductKey& key);

  const CublasLt& lt_;
  const int capability_;
  cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;
  AlgorithmTable table_;
  std::map<ProductKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace tandem::gpu::cuda
