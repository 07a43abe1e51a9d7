#pragma once
// Every instruction set that isa/ is compiled for. AVX2 means AVX2 + FMA + F16C.
#include "gpu/host/kernels/row_kernels.h"

namespace tandem::gpu {

namespace generic {
extern const RowKernels kRowKernels;
}
namespace avx2 {
extern const RowKernels kRowKernels;
}

}  // namespace tandem::gpu
