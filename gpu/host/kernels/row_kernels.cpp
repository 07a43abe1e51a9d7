#include "gpu/host/kernels/row_kernels.h"

#include "gpu/host/kernels/isa/tables.h"

namespace tandem::gpu {

std::span<const RowKernels* const> row_kernels() {
#if defined(__x86_64__)
  static const RowKernels* const kAll[] = {&avx2::kRowKernels, &generic::kRowKernels};
  const bool fast =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return std::span(kAll).subspan(fast ? 0 : 1);
#else
  static const RowKernels* const kAll[] = {&generic::kRowKernels};
  return kAll;
#endif
}

}  // namespace tandem::gpu
