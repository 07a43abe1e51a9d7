#include "gpu/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <string>

namespace tandem::gpu::cuda {

namespace {

void* open_library() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen((TANDEM_CUDA_LIBRARIES "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr, Status::failed, fmt::format("{} can't be opened", name), {},
        fmt::format("install cuBLAS {} (it comes with the CUDA toolkit), or name its folder in "
                    "LD_LIBRARY_PATH",
                    CUBLAS_VER_MAJOR));
  return library;
}

template <class Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  CHECK(function != nullptr, Status::failed, fmt::format("cuBLASLt has no {}", name), {},
        fmt::format("install cuBLAS {}.{} or newer", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR));
}

CublasLt open() {
  void* const library = open_library();
  CublasLt lt{};
  load(library, "cublasLtCreate", lt.create);
  load(library, "cublasLtDestroy", lt.destroy);
  load(library, "cublasLtGetStatusName", lt.status_name);
  load(library, "cublasLtMatmul", lt.matmul);
  load(library, "cublasLtMatmulDescCreate", lt.desc_create);
  load(library, "cublasLtMatmulDescDestroy", lt.desc_destroy);
  load(library, "cublasLtMatmulDescSetAttribute", lt.desc_set);
  load(library, "cublasLtMatrixLayoutCreate", lt.layout_create);
  load(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy);
  load(library, "cublasLtMatmulPreferenceCreate", lt.preference_create);
  load(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy);
  load(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set);
  load(library, "cublasLtMatmulAlgoGetHeuristic", lt.heuristic);
  load(library, "cublasLtMatmulAlgoInit", lt.algo_init);
  load(library, "cublasLtMatmulAlgoCheck", lt.algo_check);
  load(library, "cublasLtMatmulAlgoConfigSetAttribute", lt.config_set);
  load(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.config_get);
  return lt;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt lt = open();
  return lt;
}

void check(const CublasLt& lt, cublasStatus_t status, const char* call) {
  CHECK(status == CUBLAS_STATUS_SUCCESS, Status::failed, fmt::format("{}: {}", call, lt.status_name(status)));
}

}  // namespace tandem::gpu::cuda
