#pragma once
// Matrix products of whole tensors: a static grid of tiles over the output that depends on the shape alone,
// one single-threaded BLAS product per tile, shared by the workers. So neither their number nor the pool
// changes a bit.
#include <cstdint>

#include "core/base/tensor.h"
#include "core/device/ops.h"
#include "gpu/host/kernels/kernel_tools.h"
#include "gpu/host/linear_blas.h"

namespace tandem::gpu {

/// How an [m, n] output is cut: tile (i, j) holds rows [i * rows, ...) and columns [j * columns, ...).
struct TileGrid {
  int64_t rows, columns;  ///< of one tile, but for the last
  int64_t down, across;   ///< number of tiles
};
TileGrid tile_grid(int64_t m, int64_t n);

/// c = op(a) * op(b), or added to c, in readable memory. c: [m, n], f32, bf16 or f16; a and b: f32, or both
/// of one 16-bit type. 16-bit operands are converted tile by tile, in panels of kPanelDepth of k, to fp32;
/// products and sums are fp32; a 16-bit c is rounded once.
void product(Workers& workers, const KernelTools& tools, Storage storage, Tensor c, Tensor a, Tensor b,
             Into into);

constexpr int64_t kPanelDepth = 1024;
/// Floats of scratch that one tile needs at most, whatever the shape.
int64_t product_scratch_floats();

}  // namespace tandem::gpu
