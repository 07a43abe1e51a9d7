#include <algorithm>
#include <cstring>

#include "tests/cuda_fake/cublaslt_objects.h"

namespace tandem::cuda_fake {

namespace {

constexpr uint32_t kMagic = 0x4c74414c;

/// What the fake writes into a cublasLtMatmulAlgo_t.
struct Content {
  uint32_t magic;
  int32_t id;
  uint32_t tile, stages;
  int32_t split_k;
  uint32_t reduction, swizzle, custom;
  uint16_t inner_shape, cluster_shape;
};
static_assert(sizeof(Content) <= sizeof(cublasLtMatmulAlgo_t));

Content content_of(const cublasLtMatmulAlgo_t& algo) {
  Content content{};
  std::memcpy(&content, &algo, sizeof content);
  return content;
}
cublasLtMatmulAlgo_t algo_of(const Content& content) {
  cublasLtMatmulAlgo_t algo{};
  std::memcpy(&algo, &content, sizeof content);
  return algo;
}
Content content_of(const LtAlgorithm& a) {
  return {kMagic, a.id, a.tile, a.stages, a.split_k, a.reduction, 0, 0, 0, a.cluster_shape};
}

/// visit(member) for the attribute; INVALID_VALUE if there is none of that size.
template <class Visit>
cublasStatus_t with_attribute(Content& content, cublasLtMatmulAlgoConfigAttributes_t attribute, size_t bytes,
                              const Visit& visit) {
  const auto with = [&](auto& member) {
    if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
    visit(&member);
    return CUBLAS_STATUS_SUCCESS;
  };
  if (content.magic != kMagic) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return with(content.id);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return with(content.tile);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return with(content.split_k);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return with(content.reduction);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
      return with(content.swizzle);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return with(content.custom);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return with(content.stages);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      return with(content.inner_shape);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return with(content.cluster_shape);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

}  // namespace

const std::vector<LtAlgorithm>& lt_algorithms() {
  const cublasStatus_t good = CUBLAS_STATUS_SUCCESS;
  static const std::vector<LtAlgorithm> algorithms = {
      {66, 20, 11, 4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0, 0, 4096, good},
      {66, 20, 11, 4, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0, 0, 4096, good},
      {66, 20, 11, 8, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 0, size_t{1} << 30, good},
      {67, 20, 12, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 0, CUBLAS_STATUS_NOT_SUPPORTED},
      {66, 24, 15, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 3, 16, 1u << 20, good},
      {21, 15, 8, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 0, good}};
  return algorithms;
}

const LtAlgorithm* lt_algorithm(const cublasLtMatmulAlgo_t& algo) {
  const Content content = content_of(algo);
  for (const LtAlgorithm& known : lt_algorithms()) {
    const Content offered = content_of(known);
    if (std::memcmp(&offered, &content, sizeof content) == 0) return &known;
  }
  return nullptr;
}

cublasStatus_t lt_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t preference, int requested,
                            cublasLtMatmulHeuristicResult_t results[], int* count) {
  if (lt_objects<LtHandle>().find(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const LtPreference* limits = lt_objects<LtPreference>().find(preference);
  if (limits == nullptr || requested <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  const LtProduct product = lt_product(desc, a, b, c, d);
  if (const cublasStatus_t status = lt_complaint(product); status != CUBLAS_STATUS_SUCCESS) return status;
  *count = 0;
  for (const LtAlgorithm& known : lt_algorithms()) {
    // The one with too large a workspace is offered whatever the limit: the library must not be trusted.
    const bool reaches =
        std::ranges::all_of(limits->alignment, [&](size_t at) { return at >= known.alignment; });
    if (!reaches || *count == requested) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo = algo_of(content_of(known));
    result.workspaceSize = known.workspace;
    result.state = known.state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t lt_algo_init(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                            cudaDataType_t, cudaDataType_t, cudaDataType_t, cudaDataType_t, int id,
                            cublasLtMatmulAlgo_t* algo) {
  if (lt_objects<LtHandle>().find(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (std::ranges::none_of(lt_algorithms(), [&](const LtAlgorithm& known) { return known.id == id; }))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *algo = algo_of({kMagic, id, 0, 0, 1, 0, 0, 0, 0, 0});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t lt_algo_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                             const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (lt_objects<LtHandle>().find(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const LtProduct product = lt_product(desc, a, b, c, d);
  if (const cublasStatus_t status = lt_complaint(product); status != CUBLAS_STATUS_SUCCESS) return status;
  const LtAlgorithm* known = lt_algorithm(*algo);
  if (known == nullptr || known->state != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = known->workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t lt_config_set(cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                             const void* value, size_t bytes) {
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;  // read-only
  Content content = content_of(*algo);
  const cublasStatus_t status =
      with_attribute(content, attribute, bytes, [&](void* member) { std::memcpy(member, value, bytes); });
  *algo = algo_of(content);
  return status;
}

cublasStatus_t lt_config_get(const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                             void* value, size_t bytes, size_t* written) {
  Content content = content_of(*algo);
  *written = bytes;
  return with_attribute(content, attribute, bytes,
                        [&](const void* member) { std::memcpy(value, member, bytes); });
}

}  // namespace tandem::cuda_fake
