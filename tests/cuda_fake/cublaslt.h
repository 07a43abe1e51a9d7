#pragma once
// A cuBLASLt without a card: the functions that products use, after the meaning that its documentation gives
// to column-major layouts, transposes, leading dimensions, alpha and beta. Sums are double, rounded once to
// the output's type. It refuses what the library may refuse: objects that are not alive or of another kind,
// types and shapes that don't meet, addresses that the algorithm can't take, too little workspace, and
// algorithms that its heuristic never offers. Products go into a stream of the fake runtime, which holds
// their memory to its rules; on the default stream, which nothing else uses, they work at once and in plain
// memory.
#include <vector>

#include "gpu/cuda/cublas_lt.h"

namespace tandem::cuda_fake {

/// The fake's functions.
const gpu::cuda::CublasLt& cublas_lt();

/// What every algorithm of the fake needs and does.
struct LtAlgorithm {
  int32_t id;
  uint32_t tile, stages;
  int32_t split_k;
  uint32_t reduction;
  uint16_t cluster_shape;
  size_t alignment;  ///< of all addresses, bytes; 0: of one element
  size_t workspace;  ///< bytes
  cublasStatus_t state;
};
/// In the order in which the heuristic offers them. The first reduces in place: its results change from call
/// to call, as the order of atomics may. Then one that rounds partial sums to the output's type, one that
/// needs more workspace than any stream has, one that its state refuses, one for addresses at multiples of 16
/// and one for any.
const std::vector<LtAlgorithm>& lt_algorithms();

/// Objects made and not destroyed: handles, descriptors, layouts, preferences.
size_t lt_objects_alive();

}  // namespace tandem::cuda_fake
