#include "gpu/host/linear.h"

#include <algorithm>
#include <numeric>

#include "gpu/host/kernels/area.h"

namespace tandem::gpu {

namespace {

constexpr int64_t kTileRows = 256, kTileColumns = 768;
constexpr int64_t kNarrowest = 192;
constexpr int64_t kShares = 8;       // 2, 4 and 8 threads find equal shares ...
constexpr int64_t kManyTiles = 128;  // ... where a tile more or less would show

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

}  // namespace

// Measured on an AVX2 kernel against one product of the whole (fp32; 256 x {768, 3072, 50257} x {768, 3072},
// and the weight gradients): 256 rows and 192 columns or more keep 0.9 of the speed, few rows or few columns
// of a tall output lose up to a third. bench/linear_bench measures it again.
TileGrid tile_grid(int64_t m, int64_t n) {
  TileGrid grid{};
  grid.down = divide_up(m, kTileRows);
  grid.across = divide_up(n, kTileColumns);
  if (grid.down * grid.across < kManyTiles) {
    const int64_t multiple = kShares / std::gcd(grid.down, kShares);
    grid.across = std::clamp(round_up(grid.across, multiple), int64_t{1}, divide_up(n, kNarrowest));
  }
  grid.rows = round_up(divide_up(m, grid.down), 8);
  grid.columns = round_up(divide_up(n, grid.across), 16);
  grid.down = divide_up(m, grid.rows);
  grid.across = divide_up(n, grid.columns);
  return grid;
}

namespace {

/// One tile of c, by one product if everything is fp32, else by one per panel of k.
class Tile {
 public:
  Tile(const KernelTools& tools, Storage storage, const Tensor& c, const Tensor& a, const Tensor& b,
       const Area& area)
      : rows_(tools.rows), storage_(storage), c_(c), a_(a), b_(b), area_(area) {
    depth_ = a.dim(storage == Storage::tn ? 0 : 1);
    panel_ = a.dtype() == DType::f32 ? depth_ : std::min(depth_, kPanelDepth);
  }

  void run(Scratch& scratch, Into into) const {
    const int64_t room_a = area_room(a_, {0, area_.rows, 0, panel_});
    const int64_t room_b = area_room(b_, {0, panel_, 0, area_.columns}), room_c = area_room(c_, area_);
    Scratch::Loan loan =
        scratch.take(Scratch::rounded(room_a) + Scratch::rounded(room_b) + Scratch::rounded(room_c));
    float *a = loan.cut(room_a), *b = loan.cut(room_b), *c = loan.cut(room_c);
    if (c_.dtype() == DType::f32) {
      multiply(a, b, reinterpret_cast<float*>(address(c_, area_.row, area_.column)), c_.dim(1), into);
      return;
    }
    if (into == Into::add) load_area(rows_, c_, area_, c);
    multiply(a, b, c, area_.columns, into);
    store_area(rows_, c_, area_, c);
  }

 private:
  void multiply(float* room_a, float* room_b, float* c, int64_t ldc, Into into) const {
    for (int64_t k = 0; k < depth_; k += panel_) {
      const int64_t depth = std::min(panel_, depth_ - k);
      const Area in_a = storage_ == Storage::tn ? Area{k, depth, area_.row, area_.rows}
                                                : Area{area_.row, area_.rows, k, depth};
      const Area in_b = storage_ == Storage::nt ? Area{area_.column, area_.columns, k, depth}
                                                : Area{k, depth, area_.column, area_.columns};
      const bool adds = into == Into::add || k > 0;
      gemm({storage_, area_.rows, area_.columns, depth, 1.0f, load_area(rows_, a_, in_a, room_a),
            load_area(rows_, b_, in_b, room_b), adds ? 1.0f : 0.0f, c, ldc});
    }
  }

  const RowKernels& rows_;
  const Storage storage_;
  const Tensor &c_, &a_, &b_;
  const Area area_;
  int64_t depth_, panel_;
};

}  // namespace

void product(Workers& workers, const KernelTools& tools, Storage storage, Tensor c, Tensor a, Tensor b,
             Into into) {
  const int64_t m = c.dim(0), n = c.dim(1);
  const TileGrid grid = tile_grid(m, n);
  const auto tile = [&](int64_t i) {
    const int64_t row = i / grid.across * grid.rows, column = i % grid.across * grid.columns;
    const Area area{row, std::min(grid.rows, m - row), column, std::min(grid.columns, n - column)};
    Tile(tools, storage, c, a, b, area).run(tools.scratch, into);
  };
  const int64_t tiles = grid.down * grid.across;
  if (tiles == 1) return tile(0);  // not worth waking anybody
  workers.run(tiles, tile);
}

int64_t product_scratch_floats() {
  return kTileRows * kPanelDepth + kPanelDepth * kTileColumns + kTileRows * kTileColumns;
}

}  // namespace tandem::gpu
