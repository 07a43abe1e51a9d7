#pragma once
// The only door to the BLAS: OpenBLAS's pthread build, held at one thread a call. (Debian's serial build has
// no locks.)
#include <cstdint>
#include <functional>

#include "gpu/ops_checks.h"

namespace tandem::gpu {

/// An operand in readable fp32 memory; ld: elements from row to row.
struct Matrix {
  const float* data;
  int64_t ld;
};

/// One product: c = alpha * op(a) * op(b) + beta * c, on the calling thread. Bits depend on the shape alone.
struct Gemm {
  Storage storage;
  int64_t m, n, k;
  float alpha;
  Matrix a, b;
  float beta;
  float* c;
  int64_t ldc;
};
void gemm(const Gemm&);

/// Compares a few products of each storage, with edge sizes, with a plain loop. Error(failed) if one is wrong
/// (some builds of OpenBLAS compute wrongly on CPUs newer than they are) or if the library is not
/// the pthread build. `multiply` is gemm; tests pass a broken one.
void check_products(const std::function<void(const Gemm&)>& multiply = gemm);

}  // namespace tandem::gpu
