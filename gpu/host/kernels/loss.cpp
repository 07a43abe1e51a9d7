#include "gpu/host/kernels/loss.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/host/kernels/area.h"

namespace tandem::gpu {

namespace {

/// One row with a target: its loss, and its gradient where dlogits is not empty.
double row_loss(const RowKernels& rows, const Tensor& dlogits, const float* logits, int64_t width,
                int64_t row, int64_t target, float scale) {
  const RowSoftmax softmax = rows.softmax_sum(logits, width);
  const double above = static_cast<double>(logits[target]) - static_cast<double>(softmax.max);
  if (!dlogits.empty()) {
    const float factor = static_cast<float>(static_cast<double>(scale) / softmax.sum);
    rows.softmax_write(address(dlogits, row, 0), dlogits.dtype(), logits, softmax.max, factor, width);
    const double at_target = (std::exp(above) / softmax.sum - 1.0) * static_cast<double>(scale);
    const float rounded = static_cast<float>(at_target);
    rows.cast(address(dlogits, row, target), dlogits.dtype(), &rounded, DType::f32, 1);
  }
  return std::log(softmax.sum) - above;
}

}  // namespace

void softmax_cross_entropy(Workers& workers, const KernelTools& tools, Tensor loss, Tensor dlogits,
                           Tensor logits, Tensor targets, float scale) {
  const int64_t width = logits.dim(1);
  std::vector<double> losses(static_cast<size_t>(logits.dim(0)));
  share(workers, logits.dim(0), width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t target = targets.data<int32_t>()[r];
      ASSERT(target < width, "target {} at {} of a vocabulary of {}", target, r, width);
      if (target >= 0)
        losses[static_cast<size_t>(r)] =
            row_loss(tools.rows, dlogits, logits.data<float>() + r * width, width, r, target, scale);
      else if (!dlogits.empty())
        std::memset(address(dlogits, r, 0), 0, static_cast<size_t>(width) * size_of(dlogits.dtype()));
    }
  });
  double& total = loss.data<double>()[0];
  for (const double one : losses) total += one;
}

}  // namespace tandem::gpu
