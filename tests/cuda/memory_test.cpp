// Memory of the CUDA device: kinds, limits, pins, copies.
#include <csignal>

#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(CudaMemory, CopiesCarryBytesBetweenHostAndDeviceAndWithinBoth) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rig rig(seed);
    Pinned<float> from(rig.device, 100), to(rig.device, 100);
    for (size_t i = 0; i < 100; ++i) from.values()[i] = static_cast<float>(i);
    const Buffer first = rig.device.allocate(400, "weights");
    const Buffer second = rig.device.allocate(400, "weights");
    const auto stream = rig.device.stream("s", Purpose::compute, 0);
    stream->copy(first.tensor(DType::f32, {100}), from.tensor());
    stream->copy(second.tensor(DType::f32, {100}), first.tensor(DType::f32, {100}));
    stream->fill_zero(second.tensor(DType::f32, {10}));
    stream->copy(to.tensor(), second.tensor(DType::f32, {100}));
    stream->record().wait();
    for (size_t i = 0; i < 100; ++i) EXPECT_EQ(to.values()[i], i < 10 ? 0.0f : static_cast<float>(i)) << i;
  }
}

}  // namespace
}  // namespace tandem::gpu::cuda
