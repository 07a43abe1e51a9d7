#pragma once
#include <functional>

#include "core/device/workers.h"
#include "gpu/host/kernels/row_kernels.h"
#include "gpu/host/kernels/scratch.h"

namespace tandem::gpu {

/// What every kernel of the host device is given besides its tensors.
struct KernelTools {
  const RowKernels& rows;
  Scratch& scratch;
};

/// body(begin, end) over [0, n) in ranges of about 16 K elements, `each` elements to an item: enough work for
/// a task, and cuts that depend on the sizes alone. A single range runs on the calling thread.
inline void share(Workers& workers, int64_t n, int64_t each,
                  const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kElements = 16384;
  const int64_t grain = each >= kElements ? 1 : kElements / (each > 0 ? each : 1);
  if (n <= grain) {
    if (n > 0) body(0, n);
    return;
  }
  workers.ranges(n, grain, body);
}

}  // namespace tandem::gpu
