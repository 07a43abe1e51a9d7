#pragma once
// cuBLASLt by a table of its functions. The library is opened when the first CUDA device is made: the program
// starts where there is none, and does not carry its half a gigabyte.
#include <cublasLt.h>

#include "core/base/error.h"

namespace tandem::gpu::cuda {

/// The functions that products use, under their names without "cublasLt".
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoInit) algo_init;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) config_set;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) config_get;
};

/// The library of this toolkit's major version, opened once by the loader's usual search, else in the
/// toolkit's folder of this build. Error(failed) if it can't be opened or lacks a function.
const CublasLt& cublas_lt();

/// Error(failed) unless the call succeeded.
void check(const CublasLt& lt, cublasStatus_t status, const char* call);

}  // namespace tandem::gpu::cuda
