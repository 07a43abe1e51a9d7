#include "tests/cuda_fake/cublaslt.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "tests/cuda_fake/cublaslt_objects.h"
#include "tests/cuda_fake/state.h"
#include "tests/gpu/op_cases.h"

namespace tandem::cuda_fake {

namespace {

DType dtype_of(cudaDataType_t type) {
  if (type == CUDA_R_32F) return DType::f32;
  return type == CUDA_R_16BF ? DType::bf16 : DType::f16;
}

bool is_supported(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

template <class T, class Opaque, class... Values>
cublasStatus_t make(Opaque** object, Values... values) {
  *object = static_cast<Opaque*>(lt_objects<T>().add(T{values...}));
  return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Opaque>
cublasStatus_t destroy(Opaque* object) {
  return lt_objects<T>().remove(object) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

template <class T>
cublasStatus_t put(T& member, const void* value, size_t bytes) {
  if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&member, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create(cublasLtHandle_t* handle) { return make<LtHandle>(handle); }

const char* status_name(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "another status";
  }
}

cublasStatus_t desc_create(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return make<LtDesc>(desc, compute, scale);
}
cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                        const void* value, size_t bytes) {
  LtDesc* const d = lt_objects<LtDesc>().find(desc);
  if (d == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return put(d->turn_a, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return put(d->turn_b, value, bytes);
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t layout_create(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                             uint64_t columns, int64_t ld) {
  return make<LtLayout>(layout, type, rows, columns, ld);
}

cublasStatus_t preference_create(cublasLtMatmulPreference_t* preference) {
  return make<LtPreference>(preference);
}
cublasStatus_t preference_set(cublasLtMatmulPreference_t preference,
                              cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                              size_t bytes) {
  LtPreference* const p = lt_objects<LtPreference>().find(preference);
  if (p == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return put(p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return put(p->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return put(p->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return put(p->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return put(p->alignment[3], value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/// A column-major matrix in plain memory, as doubles, and how it is turned.
class Matrix {
 public:
  Matrix(const LtLayout& layout, int32_t turn, const void* data)
      : ld_(static_cast<size_t>(layout.ld)), turned_(turn != CUBLAS_OP_N) {
    const size_t count = (layout.columns - 1) * ld_ + layout.rows;
    values_ = op_cases::decode(dtype_of(layout.type),
                               {static_cast<const std::byte*>(data), count * lt_size(layout.type)});
  }
  [[nodiscard]] double at(size_t row, size_t column) const {
    return turned_ ? values_[column + row * ld_] : values_[row + column * ld_];
  }

 private:
  size_t ld_;
  bool turned_;
  op_cases::Values values_;
};

/// Everything of one call, kept until its stream comes to it.
struct Work {
  LtDesc desc;
  LtLayout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  double alpha, beta, disorder;

  void run() const {
    const LtProduct product{&desc, &a, &b, &c, &d};
    const Matrix left(a, desc.turn_a, a_data), right(b, desc.turn_b, b_data);
    const DType out = dtype_of(d.type);
    op_cases::Values column(product.m());
    for (size_t j = 0; j < product.n(); ++j) {
      for (size_t i = 0; i < column.size(); ++i) {
        double sum = 0;
        for (size_t k = 0; k < product.k(); ++k) sum += left.at(i, k) * right.at(k, j);
        column[i] = alpha * sum * (1 + disorder) + (beta == 0 ? 0 : beta * held(i, j));
        column[i] = op_cases::rounded(column[i], out);
      }
      const std::vector<std::byte> bytes = op_cases::encode(out, column);
      std::memcpy(static_cast<std::byte*>(d_data) + j * static_cast<size_t>(d.ld) * lt_size(d.type),
                  bytes.data(), bytes.size());
    }
  }

 private:
  [[nodiscard]] double held(size_t i, size_t j) const {
    const size_t at = (i + j * static_cast<size_t>(c.ld)) * lt_size(c.type);
    return op_cases::decode(dtype_of(c.type),
                            {static_cast<const std::byte*>(c_data) + at, lt_size(c.type)})[0];
  }
};

size_t bytes_of(const LtLayout& layout) {
  return ((layout.columns - 1) * static_cast<size_t>(layout.ld) + layout.rows) * lt_size(layout.type);
}

/// Runs the work when the stream comes to it.
cublasStatus_t start(const Work& work, const void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (stream == nullptr) {
    work.run();
    return CUBLAS_STATUS_SUCCESS;
  }
  const Lock lock(state().mutex);
  Operation operation{.text = "a product", .is_work = true};
  const std::pair<const void*, size_t> all[] = {{work.a_data, bytes_of(work.a)},
                                                {work.b_data, bytes_of(work.b)},
                                                {work.c_data, bytes_of(work.c)},
                                                {work.d_data, bytes_of(work.d)},
                                                {workspace, workspace_bytes}};
  for (const auto& [data, bytes] : all) {
    if (bytes == 0) continue;
    if (place_of(data, bytes, operation.text).kind != Place::Kind::device) return CUBLAS_STATUS_INVALID_VALUE;
    const auto at = reinterpret_cast<uintptr_t>(data);
    operation.uses.push_back({static_cast<const std::byte*>(data), bytes});
    operation.accesses.push_back({at, at + bytes, data == work.d_data || data == workspace});
  }
  operation.run = [work] {
    const OpenMemory open;
    work.run();
  };
  return enqueue(stream, std::move(operation)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_EXECUTION_FAILED;
}

bool is_at(const void* address, size_t alignment) {
  return address != nullptr && reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

}  // namespace

size_t lt_size(cudaDataType_t type) { return size_of(dtype_of(type)); }

LtProduct lt_product(const void* desc, const void* a, const void* b, const void* c, const void* d) {
  auto& layouts = lt_objects<LtLayout>();
  return {lt_objects<LtDesc>().find(desc), layouts.find(a), layouts.find(b), layouts.find(c),
          layouts.find(d)};
}

cublasStatus_t lt_complaint(const LtProduct& p) {
  for (const LtLayout* layout : {p.a, p.b, p.c, p.d})
    if (layout == nullptr || layout->rows == 0 || layout->columns == 0 ||
        layout->ld < static_cast<int64_t>(layout->rows))
      return CUBLAS_STATUS_INVALID_VALUE;
  if (p.desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const uint64_t k_of_b = p.desc->turn_b == CUBLAS_OP_N ? p.b->rows : p.b->columns;
  for (const LtLayout* out : {p.c, p.d})
    if (out->rows != p.m() || out->columns != p.n()) return CUBLAS_STATUS_INVALID_VALUE;
  if (k_of_b != p.k()) return CUBLAS_STATUS_INVALID_VALUE;
  const bool types = is_supported(p.a->type) && p.b->type == p.a->type && p.d->type == p.c->type &&
                     (p.c->type == p.a->type || p.c->type == CUDA_R_32F);
  const bool fp32 = p.desc->compute == CUBLAS_COMPUTE_32F && p.desc->scale == CUDA_R_32F;
  return types && fp32 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t lt_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                         cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                         const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                         cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                         size_t workspace_bytes, cudaStream_t stream) {
  if (lt_objects<LtHandle>().find(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const LtProduct p = lt_product(desc, a_layout, b_layout, c_layout, d_layout);
  if (const cublasStatus_t status = lt_complaint(p); status != CUBLAS_STATUS_SUCCESS) return status;
  const LtAlgorithm* known = algo == nullptr ? nullptr : lt_algorithm(*algo);
  if (known == nullptr || known->state != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto reaches = [&](const void* address, const LtLayout* layout) {
    return is_at(address, std::max(known->alignment, lt_size(layout->type)));
  };
  if (!reaches(a, p.a) || !reaches(b, p.b) || !reaches(c, p.c) || !reaches(d, p.d))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (known->workspace > 0 && (workspace_bytes < known->workspace || !is_at(workspace, 16)))
    return CUBLAS_STATUS_INVALID_VALUE;
  static std::atomic<int> calls = 0;
  const bool in_order = known->reduction != CUBLASLT_REDUCTION_SCHEME_INPLACE;
  const double disorder = in_order ? 0 : std::ldexp(++calls, -6);
  const auto scalar = [](const void* host) { return double{*static_cast<const float*>(host)}; };
  const Work work{*p.desc, *p.a, *p.b, *p.c, *p.d, a, b, c, d, scalar(alpha), scalar(beta), disorder};
  return start(work, workspace, known->workspace, stream);
}

size_t lt_objects_alive() {
  return lt_objects<LtHandle>().count() + lt_objects<LtDesc>().count() + lt_objects<LtLayout>().count() +
         lt_objects<LtPreference>().count();
}

const gpu::cuda::CublasLt& cublas_lt() {
  static const gpu::cuda::CublasLt lt = {create,
                                         destroy<LtHandle>,
                                         status_name,
                                         lt_matmul,
                                         desc_create,
                                         destroy<LtDesc>,
                                         desc_set,
                                         layout_create,
                                         destroy<LtLayout>,
                                         preference_create,
                                         destroy<LtPreference>,
                                         preference_set,
                                         lt_heuristic,
                                         lt_algo_init,
                                         lt_algo_check,
                                         lt_config_set,
                                         lt_config_get};
  return lt;
}

}  // namespace tandem::cuda_fake
