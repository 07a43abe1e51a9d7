#pragma once
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/reduce.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// y[n, :] = table[tokens[n], :]. One block per n. y: [N, width]; table: [V, width]; tokens: [N] in [0, V).
/// Reads and writes a row of each once.
template <class T>
KERNEL void embedding_forward(T* y, const T* table, const int32_t* tokens, int64_t width) {
  T* const to = y + block() * width;
  const T* const from = table + read(tokens + block()) * width;
  for_row(width, aligned(to, from),
          [&](int64_t i, Part part) { write_elements(to + i, read_elements(from + i, part), part); });
}

/// dtable[tokens[n], :] += dy[n, :], for n in ascending order. One block of kBlockThreads per n: the first n
/// of a token adds the rows of all that follow, the others end at once, so that no two blocks meet in a row
/// of dtable. dtable: [V, width] fp32; dy: [count, width]; tokens: [count]. Every block reads the tokens once
/// (from L2: count^2 words in all, a quarter of a GB for 8192), dy is read once; a row of dtable is read and
/// written once for each n of its token.
template <class T>
KERNEL void embedding_backward(float* dtable, const T* dy, const int32_t* tokens, int64_t count,
                               int64_t width) {
  SHARED_ARRAY(uint32_t, found, kBlockThreads / kWarp);
  const int32_t token = read(tokens + block());
  int32_t earlier = 0;
  for (int64_t n = thread(); n < block(); n += threads()) earlier += read(tokens + n) == token ? 1 : 0;
  if (block_sum(earlier) > 0) return;
  float* const row = dtable + token * width;
  for (int64_t begin = block(); begin < count; begin += threads()) {
    const int64_t n = begin + thread();
    const uint32_t lanes = ballot(kAllLanes, n < count && read(tokens + n) == token);
    if (lane() == 0) found[warp()] = lanes;
    block_barrier();
    for (int w = 0; w < threads() / kWarp; ++w)
      for (uint32_t left = found[w]; left != 0; left &= left - 1) {
        const T* const from = dy + (begin + w * kWarp + lowest_bit(left)) * width;
        for_row(width, aligned(row, from), [&](int64_t i, Part part) {
          const Pack sum = load(row + i, part), one = load(from + i, part);
          store(row + i, pack_of([&](int k) { return sum.x[k] + one.x[k]; }), part);
        });
      }
    block_barrier();  // the next round writes `found`
  }
}

}  // namespace tandem::gpu::TANDEM_SIMT
