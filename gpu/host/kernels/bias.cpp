#include "gpu/host/kernels/bias.h"

#include <algorithm>

#include "gpu/host/kernels/area.h"

namespace tandem::gpu {

void add_bias(Workers& workers, const KernelTools& tools, Tensor y, Tensor bias) {
  const int64_t width = y.dim(1);
  share(workers, y.dim(0), width, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      tools.rows.add(address(y, n, 0), address(y, n, 0), bias.raw(), y.dtype(), width);
  });
}

void bias_backward(Workers& workers, const KernelTools& tools, Tensor dbias, Tensor dy) {
  constexpr int64_t kColumns = 64, kRows = 32;
  const int64_t rows = dy.dim(0);
  workers.ranges(dy.dim(1), kColumns, [&](int64_t begin, int64_t end) {
    float total[kColumns] = {};  // blocks of 32 rows, then the blocks: shallow enough for thousands of rows
    for (int64_t block = 0; block < rows; block += kRows) {
      float sum[kColumns] = {};
      for (int64_t n = block; n < std::min(block + kRows, rows); ++n)
        tools.rows.accumulate(sum, address(dy, n, begin), dy.dtype(), end - begin);
      tools.rows.accumulate(total, sum, DType::f32, end - begin);
    }
    tools.rows.accumulate(dbias.data<float>() + begin, total, DType::f32, end - begin);
  });
}

}  // namespace tandem::gpu
