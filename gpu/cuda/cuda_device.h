#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "gpu/cuda/cuda_card.h"

namespace tandem::gpu::cuda {

struct CudaCore;
class CudaDevice;
class CudaStream;

using CudaOpsFactory = std::function<std::unique_ptr<Ops>(CudaDevice&)>;

struct CudaDeviceOptions {
  int card = 0;
  size_t memory_limit = 0;             ///< bytes; 0 = what is free at the start
  size_t pin_chunk = size_t{1} << 30;  ///< bytes that are pinned at once
};

/// An NVIDIA card. Memory is cudaMalloc's; lanes are threads as on the host device, which streams wait for
/// in the card (lane_flags.h). InternalError for a copy from or to pageable memory, beyond a buffer or pinned
/// span, device memory in a lane, a fence of another device. A call that CUDA refuses poisons the device, as
/// does work that fails later. After a failure even a fence that had passed throws it. No traces: what
/// streams do is seen by NVIDIA's tools.
class CudaDevice final : public Device {
 public:
  /// Error as open_card says; Error(does_not_fit) for a limit above what is free. Without a factory there are
  /// no ops.
  CudaDevice(const CudaDeviceOptions& options, const CudaOpsFactory& make_ops);
  ~CudaDevice() override;

  [[nodiscard]] DeviceInfo info() const override;
  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override;
  [[nodiscard]] Pin pin(std::span<std::byte> host) override;
  [[nodiscard]] std::unique_ptr<Stream> stream(std::string_view name, Purpose purpose, int priority) override;
  [[nodiscard]] std::vector<std::unique_ptr<HostLane>> lanes(std::span<const std::string> names,
                                                             Purpose purpose) override;
  [[nodiscard]] std::shared_ptr<FencePromise> promise(std::string name) override;
  [[nodiscard]] Ops& ops() override;
  [[nodiscard]] double read(const Scalar& scalar) override;
  /// Nothing is done with it but to see that it is device memory.
  void scratch(Stream& stream, Tensor scratch) override;
  void fail(std::exception_ptr failure) noexcept override;
  void check() const override;
  [[nodiscard]] const MemoryCounters& counters() const override;

  // ---- for ops
  /// What to launch on; the card is the calling thread's from here on. Throws the device's failure.
  [[nodiscard]] cudaStream_t handle(Stream& stream);
  /// Device memory of the stream, at least so large, at a multiple of 256 bytes; counted as "workspace". Any
  /// two uses on the stream share it. Growing drains the stream, so it is for outside of steps.
  [[nodiscard]] void* workspace(Stream& stream, size_t bytes);
  /// Throws, and poisons the device, unless the launch of `operation` succeeded.
  void launched(Stream& stream, cudaError_t status, std::string_view operation);

 private:
  [[nodiscard]] CudaStream& own(Stream& stream, std::string_view what) const;
  const CardInfo card_;
  const std::shared_ptr<CudaCore> core_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace tandem::gpu::cuda
