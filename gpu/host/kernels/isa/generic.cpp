// The baseline of the machine's ABI: SSE2 on x86-64, NEON on AArch64. No extra compiler flags.
#include <xsimd/xsimd.hpp>

#define TANDEM_ISA generic
#if defined(__x86_64__)
#define TANDEM_ISA_ARCH xsimd::sse2
#else
#define TANDEM_ISA_ARCH xsimd::default_arch
#endif
#include "gpu/host/kernels/isa/convert_generic.h"
#include "gpu/host/kernels/isa/table_text.h"
