// Memory of the CUDA device: kinds, limits, pins, copies.
#include <csignal>

#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(FakeCudaMemory, CopiesCarryBytesBetweenHostAndDeviceAndWithinBoth) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rig rig(seed);
    Pinned<float> from(rig.device, 100), to(rig.device, 100), there(rig.device, 100);
    std::vector<float> pageable(100);
    for (size_t i = 0; i < 100; ++i) from.values()[i] = static_cast<float>(i) + 0.5f;
    const Buffer first = rig.device.allocate(400, "weights");
    const Buffer second = rig.device.allocate(400, "weights");
    const auto stream = rig.device.stream("s", Purpose::compute, 0);
    stream->copy(first.tensor(DType::f32, {100}), from.tensor());
    stream->copy(second.tensor(DType::f32, {100}), first.tensor(DType::f32, {100}));
    stream->fill_zero(second.tensor(DType::f32, {10}));
    stream->copy(to.tensor(), second.tensor(DType::f32, {100}));
    stream->copy(there.tensor(), to.tensor());
    stream->copy(there.tensor().flat(0, 0), to.tensor().flat(0, 0));
    const auto lane = rig.device.lane("l", Purpose::adam);
    const Tensor copied(pageable.data(), DType::f32, {100});
    lane->wait(stream->record());
    lane->copy(copied, there.tensor());
    lane->fill_zero(copied.flat(99, 1));
    lane->record().wait();
    for (size_t i = 0; i < 99; ++i) EXPECT_EQ(pageable[i], i < 10 ? 0.0f : static_cast<float>(i) + 0.5f) << i;
    EXPECT_EQ(pageable[99], 0.0f);
  }
}

TEST(FakeCudaMemoryDeathTest, DeviceMemoryCannotBeTouchedAtItsAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rig rig;
  const Buffer buffer = rig.device.allocate(64, "weights");
  volatile char* address = static_cast<volatile char*>(buffer.raw());
  const auto read_it = [&] {
    std::signal(SIGSEGV, SIG_DFL);
    return *address;
  };
  EXPECT_EXIT((void)read_it(), testing::KilledBySignal(SIGSEGV), "");
}

TEST(FakeCudaMemory, AllocationsAreCountedByScopeAndReallyGoBack) {
  Rig rig;
  {
    const Buffer weights = rig.device.allocate(32 * kMiB, "weights");
    const Buffer odd = rig.device.allocate(5, "odd");
    EXPECT_EQ(odd.bytes(), 5u);
    EXPECT_EQ(cuda_fake::live().buffers, 2u);
    const auto scopes = rig.device.counters().scopes();
    EXPECT_EQ(scopes.at("weights").now, 32 * kMiB);
    EXPECT_EQ(scopes.at("odd").now, 5u);
    EXPECT_EQ(rig.device.info().free_bytes, 32 * kMiB - 5);
  }
  EXPECT_EQ(cuda_fake::live().buffers, 0u);
  EXPECT_EQ(rig.device.counters().total().now, 0u);
  EXPECT_EQ(rig.device.counters().total().peak, 32 * kMiB + 5);
  EXPECT_EQ(rig.device.info().free_bytes, 64 * kMiB);
}

TEST(FakeCudaMemory, AboveTheLimitIsAnErrorWithScopeNeedLimitAndHint) {
  Rig rig(0, {.memory_limit = 3 * kMiB});
  const Buffer held = rig.device.allocate(kMiB, "weights");
  const std::string message =
      message_of<Error>([&] { (void)rig.device.allocate(2 * kMiB + 1, "gradients"); });
  for (const char* part : {"\"gradients\"", "2097153 bytes", "1.0 MiB of the limit of 3.0 MiB",
                           "device.memory_limit", "train_micro_batch_size_per_gpu"})
    EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  EXPECT_EQ(rig.device.allocate(2 * kMiB, "gradients").bytes(), 2 * kMiB);
  EXPECT_TRUE(rig.device.allocate(0, "nothing").empty());
  rig.device.check();
}

TEST(FakeCudaMemory, ACardThatOthersHaveFilledIsAnErrorThatDoesNotPoison) {
  Rig rig;
  cuda_fake::fail_call("cudaMalloc", cudaErrorMemoryAllocation);
  const std::string message = message_of<Error>([&] { (void)rig.device.allocate(kMiB, "gradients"); });
  EXPECT_TRUE(contains(message, "the card has no 1.0 MiB for \"gradients\"")) << message;
  rig.device.check();
  EXPECT_EQ(rig.device.counters().total().now, 0u);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(rig.device.allocate(kMiB, "gradients").bytes(), kMiB);
}

TEST(FakeCudaMemory, StreamsAndLanesRefuseTheWrongKind) {
  Rig rig;
  const auto stream = rig.device.stream("s", Purpose::d2h, 0);
  const auto lane = rig.device.lane("l", Purpose::adam);
  Buffer buffer = rig.device.allocate(16, "weights");
  const Tensor device = buffer.tensor(DType::f32, {4});
  std::vector<float> values(4);
  const Tensor pageable(values.data(), DType::f32, {4});
  const auto refusal = [](const auto& act) { return message_of<InternalError>(act); };
  EXPECT_TRUE(contains(refusal([&] { stream->copy(pageable, device); }), "copy on stream \"s\""));
  EXPECT_TRUE(contains(refusal([&] { stream->fill_zero(pageable); }), "pinned"));
  EXPECT_TRUE(contains(refusal([&] { lane->copy(pageable, device); }), "device memory"));
  EXPECT_TRUE(contains(refusal([&] { lane->fill_zero(device); }), "device memory"));
  EXPECT_TRUE(contains(refusal([&] { lane->run({"t", {device}, {}, [] {}}); }), "task \"t\""));
  EXPECT_TRUE(contains(refusal([&] { lane->run({"t", {}, {device}, [] {}}); }), "device memory"));
  EXPECT_TRUE(contains(refusal([&] { rig.device.scratch(*lane, device); }), "no stream of this device"));
  EXPECT_TRUE(contains(refusal([&] { rig.device.scratch(*stream, pageable); }), "scratch"));
  EXPECT_TRUE(contains(refusal([&] { (void)rig.device.handle(*lane); }), "no stream of this device"));
  rig.device.scratch(*stream, device);
  const Tensor more(device.raw(), DType::f32, {5});
  EXPECT_TRUE(contains(refusal([&] { stream->fill_zero(more); }), "out of bounds"));
  buffer = {};
  EXPECT_TRUE(contains(refusal([&] { stream->fill_zero(device); }), "used after free"));
  rig.device.check();
}

TEST(FakeCudaMemory, CopiesNeedEqualTypesAndSizesThatDoNotOverlap) {
  Rig rig;
  const auto stream = rig.device.stream("s", Purpose::compute, 0);
  const Buffer a = rig.device.allocate(64, "weights");
  const Buffer b = rig.device.allocate(64, "weights");
  EXPECT_THROW(stream->copy(a.tensor(DType::f32, {4}), b.tensor(DType::f32, {5})), InternalError);
  EXPECT_THROW(stream->copy(a.tensor(DType::f32, {4}), b.tensor(DType::i32, {4})), InternalError);
  EXPECT_THROW(stream->copy(a.tensor(DType::f32, {4}), a.tensor(DType::f32, {4}, 12)), InternalError);
  stream->copy(a.tensor(DType::f32, {2, 2}), b.tensor(DType::f32, {4}));
}

/// Spans are registered piece by piece, and CUDA refuses a copy across two of them (so does the fake).
TEST(FakeCudaMemory, CopiesGoAcrossTheChunksOfAPin) {
  for (const size_t chunk : {size_t{1} << 12, size_t{5000}, size_t{1} << 14}) {
    Rig rig(chunk, {.pin_chunk = chunk});
    constexpr size_t kCount = 10000;
    Pinned<float> from(rig.device, kCount), to(rig.device, kCount);
    EXPECT_GE(cuda_fake::live().pins, 5u);  // two of at least two chunks, and the lanes' flags
    for (size_t i = 0; i < kCount; ++i) from.values()[i] = static_cast<float>(i);
    const Buffer buffer = rig.device.allocate(kCount * sizeof(float), "weights");
    const Tensor all = buffer.tensor(DType::f32, {kCount});
    const auto stream = rig.device.stream("s", Purpose::compute, 0);
    stream->copy(all.flat(7, 9000), from.tensor().flat(3, 9000));
    stream->fill_zero(to.tensor());
    stream->copy(to.tensor().flat(500, 9000), all.flat(7, 9000));
    stream->record().wait();
    for (size_t i = 0; i < 9000; ++i) ASSERT_EQ(to.values()[500 + i], static_cast<float>(3 + i)) << i;
    EXPECT_EQ(to.values()[9500], 0.0f);
  }
}

TEST(FakeCudaMemory, APinThatTheDriverRefusesLeavesNothingPinned) {
  const FakeSession session({.pinnable = 3 << 14});
  CudaDevice device({.pin_chunk = size_t{1} << 14}, {});
  const size_t before = cuda_fake::live().pins;
  std::vector<std::byte> host(5 << 14);
  const std::string message = message_of<Error>([&] { (void)device.pin(host); });
  for (const char* part : {"refuses to pin 0.1 MiB of host memory after 0.0 MiB", "cudaErrorMemoryAllocation",
                           "out of memory", "try: "})
    EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  EXPECT_EQ(cuda_fake::live().pins, before);
  device.check();
  {
    const Pin pin = device.pin(std::span(host).first(2 << 14));
    EXPECT_THROW((void)device.pin(std::span(host).subspan(100, 1)), InternalError);
  }
  const Pin again = device.pin(std::span(host).first(3 << 14));
}

TEST(FakeCudaMemory, AStreamsWorkspaceGrowsAndIsCounted) {
  Rig rig;
  const auto first = rig.device.stream("a", Purpose::compute, 0);
  const auto second = rig.device.stream("b", Purpose::compute, 0);
  void* const small = rig.device.workspace(*first, 1000);
  EXPECT_EQ(rig.device.workspace(*first, 500), small);
  EXPECT_NE(rig.device.workspace(*second, 500), small);
  first->fill_zero({small, DType::u8, {1000}});
  void* const large = rig.device.workspace(*first, 5000);
  first->fill_zero({large, DType::u8, {5000}});
  EXPECT_EQ(rig.device.counters().scopes().at("workspace").now, 5500u);
  EXPECT_EQ(cuda_fake::live().buffers, 2u);
}

TEST(FakeCudaMemory, ALandedScalarIsRead) {
  Rig rig;
  Pinned<double> landed(rig.device, 1), from(rig.device, 1);
  from.values()[0] = 2.5;
  const Buffer number = rig.device.allocate(8, "loss");
  const auto stream = rig.device.stream("s", Purpose::d2h, 0);
  stream->copy(number.tensor(DType::f64, {1}), from.tensor());
  stream->copy(landed.tensor(), number.tensor(DType::f64, {1}));
  stream->record().wait();
  EXPECT_EQ(rig.device.read({landed.tensor()}), 2.5);
  EXPECT_THROW((void)rig.device.read({number.tensor(DType::f64, {1})}), InternalError);
}

}  // namespace
}  // namespace tandem::gpu::cuda
