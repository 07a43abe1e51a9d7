#include "gpu/cuda/cuda_device.h"

#include <cstring>

#include "gpu/cuda/cuda_lane.h"
#include "gpu/cuda/cuda_stream.h"

namespace tandem::gpu::cuda {

namespace {

class CudaPin final : public Pin::Registration {
 public:
  CudaPin(std::shared_ptr<CudaCore> core, std::span<std::byte> host) : core_(std::move(core)), host_(host) {
    core_->call([&] { core_->memory.pin(host_); });
  }
  ~CudaPin() override { core_->memory.unpin(host_); }

 private:
  std::shared_ptr<CudaCore> core_;
  std::span<std::byte> host_;
};

size_t memory_limit(size_t asked) {
  const size_t free = free_bytes();
  CHECK(asked <= free, Status::does_not_fit,
        fmt::format("the limit of {} bytes of device memory is above the {} that are free", asked, free),
        "device.memory_limit", fmt::format("{} or less, or leave it out", free));
  return asked != 0 ? asked : free;
}

}  // namespace

CudaDevice::CudaDevice(const CudaDeviceOptions& options, const CudaOpsFactory& make_ops)
    : card_(open_card(options.card)),
      core_(std::make_shared<CudaCore>(options.card, memory_limit(options.memory_limit), options.pin_chunk)),
      ops_(make_ops ? make_ops(*this) : nullptr) {}

CudaDevice::~CudaDevice() = default;

DeviceInfo CudaDevice::info() const {
  return {fmt::format("cuda:{}", core_->card), "cuda", core_->memory.limit(),
          core_->memory.limit() - core_->memory.counters().total().now, card_.pci_bus_id};
}

Buffer CudaDevice::allocate(size_t bytes, std::string_view scope) {
  return cuda::allocate(core_, bytes, scope);
}

Pin CudaDevice::pin(std::span<std::byte> host) { return Pin(std::make_unique<CudaPin>(core_, host)); }

std::unique_ptr<Stream> CudaDevice::stream(std::string_view name, Purpose purpose, int priority) {
  return std::make_unique<CudaStream>(core_, name, purpose, priority);
}

std::vector<std::unique_ptr<HostLane>> CudaDevice::lanes(std::span<const std::string> names,
                                                         Purpose purpose) {
  const auto runner = std::make_shared<Runner>(purpose);
  std::vector<std::unique_ptr<HostLane>> lanes;
  for (const std::string& name : names) lanes.push_back(std::make_unique<CudaLane>(core_, name, runner));
  return lanes;
}

std::shared_ptr<FencePromise> CudaDevice::promise(std::string name) {
  return make_promise(core_->runtime, std::move(name));
}

Ops& CudaDevice::ops() {
  ASSERT(ops_ != nullptr, "this CUDA device was built without ops");
  return *ops_;
}

double CudaDevice::read(const Scalar& scalar) {
  const Tensor landed = scalar.landed;  // [1] f64
  ASSERT(landed.dtype() == DType::f64 && landed.numel() == 1, "a scalar of {} x {}", landed.numel(),
         name_of(landed.dtype()));
  core_->memory.require_host(landed, "read of a scalar");
  core_->runtime->check();
  double value = 0;
  std::memcpy(&value, landed.raw(), sizeof value);
  return value;
}

void CudaDevice::scratch(Stream& stream, Tensor scratch) {
  const CudaStream& on = own(stream, "scratch");
  core_->runtime->check();
  if (scratch.empty()) return;
  const std::string what = on.describe("scratch");
  ASSERT(core_->memory.kind_of(scratch, what) == CudaMemory::Kind::device, "{} is not device memory", what);
}

void CudaDevice::fail(std::exception_ptr failure) noexcept { core_->runtime->fail(std::move(failure)); }

void CudaDevice::check() const { core_->runtime->check(); }

const MemoryCounters& CudaDevice::counters() const { return core_->memory.counters(); }

cudaStream_t CudaDevice::handle(Stream& stream) {
  const CudaStream& on = own(stream, "a launch");
  return core_->call([&] { return on.handle(); });
}

void* CudaDevice::workspace(Stream& stream, size_t bytes) {
  return own(stream, "workspace").workspace(bytes);
}

void CudaDevice::launched(Stream& stream, cudaError_t status, std::string_view operation) {
  const CudaStream& on = own(stream, operation);
  core_->call([&] {
    if (status != cudaSuccess) throw CudaError(status, "launch", on.describe(operation));
  });
}

CudaStream& CudaDevice::own(Stream& stream, std::string_view what) const {
  auto* on = dynamic_cast<CudaStream*>(&stream);
  ASSERT(on != nullptr && &on->core() == core_.get(), "{} on \"{}\", which is no stream of this device", what,
         stream.name());
  return *on;
}

}  // namespace tandem::gpu::cuda
