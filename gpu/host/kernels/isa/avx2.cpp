// AVX2 + FMA + F16C; compiled with -mavx2 -mfma -mf16c (gpu/CMakeLists.txt) and run only where CPUID has all
// three. What this file instantiates must not be shared with files of other flags: everything is in its own
// namespace or a template over the xsimd architecture. tests/gpu/ops_isa_test reads the object's symbols.
#if defined(__x86_64__)
#include <xsimd/xsimd.hpp>

#define TANDEM_ISA avx2
#define TANDEM_ISA_ARCH xsimd::fma3<xsimd::avx2>
#include "gpu/host/kernels/isa/convert_avx2.h"
#include "gpu/host/kernels/isa/table_text.h"
#endif
