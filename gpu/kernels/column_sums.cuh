#pragma once
// Sums over rows, for the gradients of biases and of norm weights: the same bits on every run, without
// atomics. A term gives term(row, column, count): the pack of `count` columns from `column`, a multiple of
// eight.
#include "gpu/kernels/pack.cuh"

namespace tandem::gpu::TANDEM_SIMT {

constexpr int kTileColumns = kWarp * kPack;        // a warp's packs
constexpr int kTileWarps = kBlockThreads / kWarp;  // each takes every kTileWarps-th row of a chunk
constexpr int kTileSums = kTileWarps * kTileColumns;
constexpr int64_t kTileRows = 8 * kTileWarps;
static_assert(kTileColumns == kBlockThreads);

/// partial[c, :] = sum over the rows of chunk c of term(row, :): every warp over its rows in order, then the
/// warps in order. Blocks of kBlockThreads: one per chunk of kTileRows rows and tile of kTileColumns columns,
/// tiles innermost. partial: [chunks, width] fp32. Reads each term once.
template <class Term>
KERNEL void column_sums(float* partial, Term term, int64_t rows, int64_t width) {
  SHARED_ARRAY(float, sums, kTileSums);
  const int64_t tiles = (width + kTileColumns - 1) / kTileColumns;
  const int64_t chunk = block() / tiles, tile = block() % tiles * kTileColumns;
  const int64_t column = tile + lane() * kPack, left = width - column;
  const int64_t end = (chunk + 1) * kTileRows < rows ? (chunk + 1) * kTileRows : rows;
  Pack sum = pack_of([](int) { return 0.0f; });
  if (left > 0)
    for (int64_t row = chunk * kTileRows + warp(); row < end; row += kTileWarps) {
      const Pack one = term(row, column, left < kPack ? static_cast<int>(left) : kPack);
      sum = pack_of([&](int k) { return sum.x[k] + one.x[k]; });
    }
  UNROLL for (int k = 0; k < kPack; ++k) sums[warp() * kTileColumns + lane() * kPack + k] = sum.x[k];
  block_barrier();
  if (tile + thread() >= width) return;
  float total = 0;
  UNROLL for (int w = 0; w < kTileWarps; ++w) total += sums[w * kTileColumns + thread()];
  write(partial + chunk * width + tile + thread(), total);
}

/// out[c] += sum over chunks, in order, of partial[chunk, c]. One thread per column.
/// out: [width] fp32; partial: [chunks, width] fp32, read once.
KERNEL void add_chunks(float* out, const float* partial, int64_t chunks, int64_t width) {
  const int64_t column = block() * threads() + thread();
  if (column >= width) return;
  float total = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) total += read(partial + chunk * width + column);
  write(out + column, read(out + column) + total);
}

}  // namespace tandem::gpu::TANDEM_SIMT
