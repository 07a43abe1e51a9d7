#include "gpu/backend.h"

#include "gpu/cuda_probe.h"
#include "host_rig.h"

namespace tandem::gpu {
namespace {

TEST(ConfigDevice, HostOpensWithOpsInBothModes) {
  const auto workers = make_plain_pool(1);
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(1)}) {
    const auto device = open("host", {workers.get(), 1 << 20, seed, true});
    EXPECT_EQ(device->info().kind, "host");
    EXPECT_EQ(device->info().memory_bytes, size_t{1} << 20);
    const Buffer buffer = device->allocate(64, "weights");
    const Tensor a = buffer.tensor(DType::f32, {4});
    const Tensor b = buffer.tensor(DType::f32, {4}, 16);
    Pinned<float> host(*device, 4);
    host.values() = {1, 2, 3, 4};
    const auto stream = device->stream("compute", Purpose::compute);
    stream->copy(a, host.tensor());
    stream->copy(b, host.tensor());
    device->ops().add(*stream, a, a, b);
    stream->copy(host.tensor(), a);
    stream->record().wait();
    EXPECT_EQ(host.values(), (std::vector<float>{2, 4, 6, 8}));
    // The ops declare what they touch: a sum on a stream that did not wait is an error.
    device->ops().add(*stream, a, a, b);
    const auto other = device->stream("other", Purpose::other);
    EXPECT_THROW(device->ops().add(*other, b, a, b), OrderError);
    stream->record().wait();
  }
}

TEST(ConfigDevice, UnknownAndAbsentDevicesAreUsageErrorsWithTheReason) {
  const auto message = [](const std::string& kind) {
    return message_of<Error>([&] { (void)open(kind, {}); });
  };
  EXPECT_TRUE(contains(message("tpu"), "unknown device \"tpu\""));
  EXPECT_TRUE(contains(message("cuda:0"), probe_cuda().why));
  EXPECT_TRUE(contains(message("cuda"), "device.kind"));
  EXPECT_THROW((void)open("host", {}), InternalError) << "without workers";
}

}  // namespace
}  // namespace tandem::gpu
