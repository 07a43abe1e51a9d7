#include "gpu/host/kernels/optimizer.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/math/reduce_tree.h"

namespace tandem::gpu {

void sum_of_squares(Workers& workers, const KernelTools& tools, Tensor out, Tensor x) {
  const int64_t n = x.numel(), leaves = (n + kReduceLeaf - 1) / kReduceLeaf;
  std::vector<double> squares(static_cast<size_t>(leaves));
  std::vector<int64_t> faults(static_cast<size_t>(leaves));
  share(workers, leaves, kReduceLeaf, [&](int64_t begin, int64_t end) {
    for (int64_t leaf = begin; leaf < end; ++leaf) {
      const int64_t first = leaf * kReduceLeaf;
      std::array<double, kReduceLanes> lanes;
      faults[static_cast<size_t>(leaf)] =
          tools.rows.leaf_squares(lanes.data(), x.bytes_at(static_cast<size_t>(first) * size_of(x.dtype())),
                                  x.dtype(), std::min(kReduceLeaf, n - first));
      squares[static_cast<size_t>(leaf)] = reduce_lanes(lanes.data());
    }
  });
  int64_t fault_count = 0;
  for (const int64_t one : faults) fault_count += one;
  out.data<double>()[0] = reduce_leaves(squares.data(), leaves);
  out.data<double>()[1] = static_cast<double>(fault_count);
}

void adam(Workers& workers, const KernelTools& tools, Tensor master, Tensor moment1, Tensor moment2,
          Tensor weight_out, Tensor grad, Decay decay, AdamScalars scalars, AdamPublish publish) {
  share(workers, master.numel(), 1, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    tools.rows.adam({.master = master.flat(begin, count).data<float>(),
                     .moment1 = moment1.flat(begin, count).data<float>(),
                     .moment2 = moment2.flat(begin, count).data<float>(),
                     .weight_out = weight_out.flat(begin, count).raw(),
                     .weight_type = weight_out.dtype(),
                     .grad = grad.flat(begin, count).raw(),
                     .grad_type = grad.dtype(),
                     .n = count},
                    decay, scalars, publish.prediction);
  });
}

}  // namespace tandem::gpu
