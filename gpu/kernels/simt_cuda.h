#pragma once
// nvcc's body of gpu/kernels/simt.h. The only file of this folder with CUDA's own words and inline PTX.

#define TANDEM_SIMT simt_cuda
#define KERNEL __global__ __launch_bounds__(::tandem::gpu::kBlockThreads)
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define SHARED_ARRAY(T, name, n) __shared__ T name[n]

namespace tandem::gpu::TANDEM_SIMT {

DEVICE int thread() { return static_cast<int>(threadIdx.x); }
DEVICE int threads() { return static_cast<int>(blockDim.x); }
DEVICE int64_t block() { return blockIdx.x; }
DEVICE int64_t blocks() { return gridDim.x; }
DEVICE int lane() { return thread() % kWarp; }
DEVICE int warp() { return thread() / kWarp; }

DEVICE void block_barrier() { __syncthreads(); }
template <class T>
DEVICE T shuffle_xor(uint32_t lanes, T x, int flip) {
  return __shfl_xor_sync(lanes, x, flip);
}
DEVICE uint32_t ballot(uint32_t lanes, bool where) { return __ballot_sync(lanes, where); }

template <class T>
DEVICE T read(const T* p) {
  return *p;
}
template <class T>
DEVICE void write(T* p, T x) {
  *p = x;
}
template <class T>
DEVICE Wide<T> read_wide(const T* p) {
  const uint4 bytes = *reinterpret_cast<const uint4*>(p);
  Wide<T> wide;
  memcpy(wide.x, &bytes, sizeof bytes);
  return wide;
}
template <class T>
DEVICE void write_wide(T* p, const Wide<T>& wide) {
  uint4 bytes;
  memcpy(&bytes, wide.x, sizeof bytes);
  *reinterpret_cast<uint4*>(p) = bytes;
}

DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return to_float(x); }
DEVICE float widen(f16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
template <class T>
DEVICE T narrow(float x);
template <>
DEVICE float narrow<float>(float x) {
  return x;
}
template <>
DEVICE bf16 narrow<bf16>(float x) {
  bf16 narrowed;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(x));
  return narrowed;
}
template <>
DEVICE f16 narrow<f16>(float x) {
  f16 narrowed;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(x));
  return narrowed;
}

DEVICE int lowest_bit(uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }

}  // namespace tandem::gpu::TANDEM_SIMT
