#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/workers.h"

namespace tandem::gpu {

/// What a kernel of the host device sees while it runs: the compute threads, and device memory made readable.
class KernelContext {
 public:
  virtual ~KernelContext() = default;
  [[nodiscard]] virtual Workers& workers() = 0;
  /// The same tensor at an address that this thread may read and write. It lies within one that the kernel
  /// declared (InternalError otherwise), or is empty.
  [[nodiscard]] virtual Tensor open(Tensor device) const = 0;
};

/// One kernel launch: a name, every tensor that it reads and writes (device addresses; checked by the vector
/// clocks), its body, and its floating-point operations where these are what it costs (products, attention).
struct Kernel {
  std::string name;
  std::vector<Tensor> reads, writes;
  std::function<void(KernelContext&)> body;
  double flops = 0;
};

/// Where the host device's ops put their kernels. Implemented by the host device; tests may run them at once.
class KernelQueue {
 public:
  virtual ~KernelQueue() = default;
  virtual void enqueue(Stream& stream, Kernel kernel) = 0;
};

}  // namespace tandem::gpu
