#pragma once
// The few places where compilers differ. TANDEM_HD marks single-source arithmetic that nvcc compiles for both
// sides.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__ __forceinline__
#else
#define TANDEM_HD [[gnu::always_inline]] inline
#endif

namespace tandem {

/// The bits of a float and back; usable on both sides of nvcc.
TANDEM_HD uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
TANDEM_HD float bits_float(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

/// a * b + c and the square root, each rounded once; usable on both sides of nvcc.
TANDEM_HD float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}
TANDEM_HD float root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

}  // namespace tandem
