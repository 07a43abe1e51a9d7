#include "gpu/cuda/products.h"

#include <array>

namespace tandem::gpu::cuda {

namespace {

constexpr cublasComputeType_t kCompute = CUBLAS_COMPUTE_32F;
constexpr cudaDataType_t kScale = CUDA_R_32F;
constexpr int kCandidates = 64;
constexpr size_t kWidestAccess = 16;

/// What cuBLASLt made, destroyed by its function.
template <class T>
using Made = std::unique_ptr<T, cublasStatus_t (*)(T*)>;
using MadeLayout = Made<cublasLtMatrixLayoutOpaque_t>;

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::f32) return CUDA_R_32F;
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// The largest power of two, up to the widest access, that every row of a tensor begins at a multiple of.
uint32_t row_alignment(int64_t width, DType dtype) {
  const size_t bytes = static_cast<size_t>(width) * size_of(dtype);
  return static_cast<uint32_t>(std::min(kWidestAccess, bytes & (~bytes + 1)));
}

/// A row-major array [rows, width].
struct Operand {
  int64_t rows, width;
  DType dtype;
  [[nodiscard]] uint32_t alignment() const { return row_alignment(width, dtype); }
};

Operand first_of(const ProductKey& key) {
  return key.storage == Storage::tn ? Operand{key.k, key.m, key.act} : Operand{key.m, key.k, key.act};
}
Operand second_of(const ProductKey& key) {
  return key.storage == Storage::nt ? Operand{key.n, key.k, key.act} : Operand{key.k, key.n, key.act};
}
Operand result_of(const ProductKey& key) { return {key.m, key.n, key.out}; }

MadeLayout layout_of(const CublasLt& lt, const Operand& array) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(lt,
        lt.layout_create(&layout, type_of(array.dtype), static_cast<uint64_t>(array.width),
                         static_cast<uint64_t>(array.rows), array.width),
        "cublasLtMatrixLayoutCreate");
  return {layout, lt.layout_destroy};
}

/// Same bits in every run, and one rounding: see the header.
bool is_reproducible(const Algorithm& algorithm) {
  return algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_NONE ||
         algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/// visit(attribute, member) for what may be set.
template <class A, class Visit>
void each_setting(A& a, const Visit& visit) {
  visit(CUBLASLT_ALGO_CONFIG_TILE_ID, a.tile);
  visit(CUBLASLT_ALGO_CONFIG_STAGES_ID, a.stages);
  visit(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, a.split_k);
  visit(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, a.reduction);
  visit(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, a.swizzle);
  visit(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, a.custom);
  visit(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, a.inner_shape);
  visit(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, a.cluster_shape);
}

Algorithm settings_of(const CublasLt& lt, const cublasLtMatmulAlgo_t& algo) {
  Algorithm a;
  const auto read = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
    size_t written = 0;
    check(lt, lt.config_get(&algo, attribute, &value, sizeof value, &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
  };
  read(CUBLASLT_ALGO_CONFIG_ID, a.id);
  each_setting(a, read);
  return a;
}

/// The algorithm with these settings. Those that it has by itself are left alone: older cards know only some.
cublasStatus_t rebuild(const CublasLt& lt, cublasLtHandle_t handle, const ProductKey& key,
                       const Algorithm& wanted, cublasLtMatmulAlgo_t& algo) {
  const cudaDataType_t in = type_of(key.act), out = type_of(key.out);
  cublasStatus_t status = lt.algo_init(handle, kCompute, kScale, in, in, out, out, wanted.id, &algo);
  each_setting(wanted, [&](cublasLtMatmulAlgoConfigAttributes_t attribute, const auto& value) {
    auto now = value;
    size_t written = 0;
    if (status == CUBLAS_STATUS_SUCCESS) status = lt.config_get(&algo, attribute, &now, sizeof now, &written);
    if (status == CUBLAS_STATUS_SUCCESS && now != value)
      status = lt.config_set(&algo, attribute, &value, sizeof value);
  });
  return status;
}

std::string text_of(const ProductKey& key) {
  return fmt::format("{} of m {}, n {}, k {} in {} to {}{}", verb_of(key.storage), key.m, key.n, key.k,
                     name_of(key.act), name_of(key.out), key.adds ? ", added" : "");
}

}  // namespace

size_t product_workspace_bytes(int capability) { return size_t{capability >= 90 ? 32u : 8u} << 20; }

/// One product as cuBLASLt is asked for it. A is our b, B our a; see the header.
struct Products::Plan {
  Plan(const CublasLt& lt, const ProductKey& key)
      : a(layout_of(lt, second_of(key))), b(layout_of(lt, first_of(key))), c(layout_of(lt, result_of(key))) {
    cublasLtMatmulDesc_t made = nullptr;
    check(lt, lt.desc_create(&made, kCompute, kScale), "cublasLtMatmulDescCreate");
    desc = {made, lt.desc_destroy};
    const auto turn = [&](cublasLtMatmulDescAttributes_t attribute, bool turned) {
      const int32_t op = turned ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(lt, lt.desc_set(made, attribute, &op, sizeof op), "cublasLtMatmulDescSetAttribute");
    };
    turn(CUBLASLT_MATMUL_DESC_TRANSA, key.storage == Storage::nt);
    turn(CUBLASLT_MATMUL_DESC_TRANSB, key.storage == Storage::tn);
  }

  /// Takes the algorithm if the library does.
  cublasStatus_t take(const CublasLt& lt, cublasLtHandle_t handle, const ProductKey& key,
                      const Algorithm& algorithm) {
    cublasStatus_t status = rebuild(lt, handle, key, algorithm, algo);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    cublasLtMatmulHeuristicResult_t result{};
    status = lt.algo_check(handle, desc.get(), a.get(), b.get(), c.get(), c.get(), &algo, &result);
    if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize > product_workspace_bytes(key.capability))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    return status;
  }

  /// Takes the first of the heuristic's list that the rule allows.
  Algorithm choose(const CublasLt& lt, cublasLtHandle_t handle, const ProductKey& key);

  Made<cublasLtMatmulDescOpaque_t> desc{nullptr, nullptr};
  MadeLayout a, b, c;
  cublasLtMatmulAlgo_t algo{};
};

namespace {

/// Limits of the search: the workspace, and the alignment that rows of each operand have.
Made<cublasLtMatmulPreferenceOpaque_t> preference_of(const CublasLt& lt, const ProductKey& key) {
  cublasLtMatmulPreference_t made = nullptr;
  check(lt, lt.preference_create(&made), "cublasLtMatmulPreferenceCreate");
  Made<cublasLtMatmulPreferenceOpaque_t> preference(made, lt.preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(lt, lt.preference_set(made, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{product_workspace_bytes(key.capability)});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, second_of(key).alignment());
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, first_of(key).alignment());
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_of(key).alignment());
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_of(key).alignment());
  return preference;
}

}  // namespace

Algorithm Products::Plan::choose(const CublasLt& lt, cublasLtHandle_t handle, const ProductKey& key) {
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int count = 0;
  const cublasStatus_t status =
      lt.heuristic(handle, desc.get(), a.get(), b.get(), c.get(), c.get(), preference_of(lt, key).get(),
                   kCandidates, candidates.data(), &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(lt, status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& candidate = candidates[static_cast<size_t>(i)];
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    const Algorithm algorithm = settings_of(lt, candidate.algo);
    if (is_reproducible(algorithm) && take(lt, handle, key, algorithm) == CUBLAS_STATUS_SUCCESS)
      return algorithm;
  }
  throw Error(Status::failed,
              fmt::format("cuBLASLt has no reproducible algorithm among {} for {}", count, text_of(key)));
}

Products::Products(const CublasLt& lt, int capability, AlgorithmTable table)
    : lt_(lt), capability_(capability), table_(std::move(table)) {
  check(lt_, lt_.create(&handle_), "cublasLtCreate");
}

Products::~Products() {
  plans_.clear();
  (void)lt_.destroy(handle_);
}

const Products::Plan& Products::plan_of(const ProductKey& key) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<Plan>& slot = plans_[key];
  if (slot != nullptr) return *slot;
  auto plan = std::make_unique<Plan>(lt_, key);
  if (const auto given = table_.find(key); given != table_.end()) {
    const auto& [algorithm, where] = given->second;
    CHECK(is_reproducible(algorithm), Status::failed,
          fmt::format("reduction {} of {} differs from run to run or rounds twice", algorithm.reduction,
                      text_of(key)),
          where, "remove this entry");
    const cublasStatus_t status = plan->take(lt_, handle_, key, algorithm);
    CHECK(status == CUBLAS_STATUS_SUCCESS, Status::failed,
          fmt::format("cuBLASLt refuses algorithm {} for {}: {}", algorithm.id, text_of(key),
                      lt_.status_name(status)),
          where, "remove this entry, or use the cuBLAS version that it was written with");
  } else {
    table_[key] = {plan->choose(lt_, handle_, key)};
  }
  slot = std::move(plan);
  return *slot;
}

void Products::enqueue(cudaStream_t stream, void* workspace, Storage storage, Tensor c, Tensor a, Tensor b,
                       Into into) {
  if (c.empty()) return;
  const int64_t k = a.dim(storage == Storage::tn ? 0 : 1);
  ASSERT(k > 0, "{} of nothing", verb_of(storage));
  const bool adds = into == Into::add;
  const ProductKey key{storage, c.dim(0), c.dim(1), k, a.dtype(), c.dtype(), adds, capability_};
  for (const Tensor& t : {a, b, c})
    ASSERT(reinterpret_cast<uintptr_t>(t.raw()) % row_alignment(t.dim(1), t.dtype()) == 0,
           "an operand of {} is at {}", text_of(key), t.raw());
  const Plan& plan = plan_of(key);
  const float one = 1, beta = adds ? 1 : 0;
  check(lt_,
        lt_.matmul(handle_, plan.desc.get(), &one, b.raw(), plan.a.get(), a.raw(), plan.b.get(), &beta,
                   c.raw(), plan.c.get(), c.raw(), plan.c.get(), &plan.algo, workspace,
                   product_workspace_bytes(capability_), stream),
        "cublasLtMatmul");
}

AlgorithmTable Products::algorithms() const {
  const std::scoped_lock lock(mutex_);
  return table_;
}

}  // namespace tandem::gpu::cuda
