#pragma once
// The dialect of the kernels in this folder: one text, which nvcc compiles for the GPU (simt_cuda.h) and g++
// for the emulator that tests run it in (simt_emulated.h, implemented in tests/simt). A kernel includes this
// header and none of CUDA's, holds no <<<>>> and no PTX, and touches global and shared memory by these words
// alone, so that the emulator sees every access:
//
//   KERNEL                         before a kernel: `template <...> KERNEL void f(...)`
//   DEVICE                         before a function that kernels call
//   UNROLL                         before a loop that must become straight code
//   thread(), threads()            index in the block; threads of the block, at most kBlockThreads
//   block(), blocks()              index in the grid, which has one dimension; blocks of the grid
//   lane(), warp()                 index in the warp; index of the warp in the block
//   block_barrier()                waits for all threads of the block: all reach it, and at the same place
//   shuffle_xor(lanes, x, flip)    x of lane() ^ flip, of up to 8 bytes; all lanes in the mask call it alike
//   ballot(lanes, where)           a bit for each lane whose `where` holds; all lanes in the mask call it
//   SHARED_ARRAY(T, name, n)       T name[n], one for the block; must be written before it is read
//   read(p), write(p, x)           one element of global memory
//   read_wide(p), write_wide(p, x) 16 bytes of global memory, at a multiple of 16 bytes
//   widen(x)                       the float of a float, bf16 or f16
//   narrow<T>(x)                   nearest even, for activations and gradients; weights: round_weight<T>
//   lowest_bit(bits)               index of the lowest bit that is set; one must be
//
// Arithmetic is plain C++ on both sides, without contraction: fused and root stand in core/base/portable.h.
#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"

namespace tandem::gpu {

constexpr int kBlockThreads = 256;
constexpr int kWarp = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

constexpr float kInfinity = __builtin_huge_valf();

/// Blocks of a kernel's grid, and the threads of each: whole warps, at most kBlockThreads.
struct Grid {
  int64_t blocks;
  int threads;
};

/// What read_wide and write_wide move.
template <class T>
struct Wide {
  static constexpr int kSize = 16 / sizeof(T);
  T x[kSize];
};

}  // namespace tandem::gpu

// The namespace of the kernels: what nvcc makes of them and what the emulator runs are different functions,
// which one program may hold.
#if defined(__CUDACC__)
#include "gpu/kernels/simt_cuda.h"
#else
#include "gpu/kernels/simt_emulated.h"
#endif
