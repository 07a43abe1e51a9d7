#include <csignal>
#include <fstream>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// A number of /proc/self/status, in bytes.
size_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return std::stoul(line.substr(key.size() + 1)) * 1024;
  return 0;
}

TEST(MemoryDeathTest, DeviceMemoryCannotBeTouchedAtItsAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // libraries may have threads of their own
  Rig rig(1);
  const Buffer buffer = rig.device.allocate(64, "weights");
  volatile char* address = static_cast<volatile char*>(buffer.raw());
  const auto read_it = [&] {
    std::signal(SIGSEGV, SIG_DFL);  // sanitizers have handlers of their own
    return *address;
  };
  const auto write_it = [&] {
    std::signal(SIGSEGV, SIG_DFL);
    *address = 1;
  };
  EXPECT_EXIT((void)read_it(), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(write_it(), testing::KilledBySignal(SIGSEGV), "");
}

TEST(Memory, CopiesCarryBytesBetweenHostAndDeviceAndWithinBoth) {
  Rig rig;
  Pinned<float> from(rig.device, 100);
  Pinned<float> to(rig.device, 100);
  std::vector<float> pageable(100);
  for (size_t i = 0; i < 100; ++i) from.values()[i] = static_cast<float>(i);
  const Buffer first = rig.device.allocate(400, "weights");
  const Buffer second = rig.device.allocate(400, "weights");
  const auto stream = rig.device.stream("s", Purpose::compute, 0);
  stream->copy(first.tensor(DType::f32, {100}), from.tensor());
  stream->copy(second.tensor(DType::f32, {100}), first.tensor(DType::f32, {100}));
  rig.device.enqueue(*stream, add_value(second.tensor(DType::f32, {100}), 0.5f));
  stream->fill_zero(second.tensor(DType::f32, {10}));
  stream->copy(to.tensor(), second.tensor(DType::f32, {100}));
  const auto lane = rig.device.lane("l", Purpose::adam);
  const Tensor copied(pageable.data(), DType::f32, {100});
  lane->wait(stream->record());
  lane->copy(copied, to.tensor());
  lane->fill_zero(copied.flat(99, 1));
  lane->record().wait();
  for (size_t i = 0; i < 99; ++i) EXPECT_EQ(pageable[i], i < 10 ? 0.0f : static_cast<float>(i) + 0.5f) << i;
  EXPECT_EQ(pageable[99], 0.0f);
}

TEST(Memory, AllocationsAreCountedByScopeAndReallyGoBack) {
  Rig rig;
  const size_t before = status_bytes("RssShmem:");
  {
    const Buffer weights = rig.device.allocate(32 * kMiB, "weights");
    const Buffer odd = rig.device.allocate(5, "odd");
    const auto stream = rig.device.stream("s", Purpose::compute, 0);
    stream->fill_zero(weights.tensor(DType::u8, {static_cast<int64_t>(weights.bytes())}));
    stream->record().wait();
    EXPECT_EQ(odd.bytes(), 5u);
    EXPECT_GE(status_bytes("RssShmem:"), before + 32 * kMiB);
    const auto scopes = rig.device.counters().scopes();
    EXPECT_EQ(scopes.at("weights").now, 32 * kMiB);
    EXPECT_EQ(scopes.at("odd").now, 5u);
    EXPECT_EQ(rig.device.info().free_bytes, 32 * kMiB - 5);
  }
  rig.device.check();
  EXPECT_LT(status_bytes("RssShmem:"), before + kMiB);
  EXPECT_EQ(rig.device.counters().total().now, 0u);
  EXPECT_EQ(rig.device.counters().total().peak, 32 * kMiB + 5);
  EXPECT_EQ(rig.device.info().free_bytes, 64 * kMiB);
}

TEST(Memory, AboveTheLimitIsAnErrorWithScopeNeedLimitAndHint) {
  Rig rig({}, 3 * kMiB);
  const Buffer held = rig.device.allocate(kMiB, "weights");
  const std::string message =
      message_of<Error>([&] { (void)rig.device.allocate(2 * kMiB + 1, "gradients"); });
  for (const char* part : {"\"gradients\"", "2097153 bytes", "1.0 MiB of the limit of 3.0 MiB",
                           "device.memory_limit", "train_micro_batch_size_per_gpu"})
    EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  try {
    (void)rig.device.allocate(SIZE_MAX, "gradients");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::does_not_fit);
  }
  EXPECT_EQ(rig.device.allocate(2 * kMiB, "gradients").bytes(), 2 * kMiB);
  EXPECT_TRUE(rig.device.allocate(0, "nothing").empty());
}

TEST(Memory, WithoutALimitTheMachinesOwnHolds) {
  Rig rig({}, 0);
  EXPECT_GT(rig.device.info().memory_bytes, kMiB);
  EXPECT_THROW((void)rig.device.allocate(size_t{1} << 50, "weights"), Error);
}

TEST(Memory, KernelsRefuseWhatIsNotInALiveBuffer) {
  Rig rig;
  const auto stream = rig.device.stream("s", Purpose::compute, 0);
  const auto run = [&](Tensor tensor) {
    return message_of<InternalError>([&] { rig.device.enqueue(*stream, claim("k", {tensor}, {})); });
  };
  Pinned<float> host(rig.device, 4);
  EXPECT_TRUE(contains(run(host.tensor()), "kernel \"k\" on stream \"s\""));
  Buffer buffer = rig.device.allocate(16, "weights");
  const Tensor four = buffer.tensor(DType::f32, {4});
  EXPECT_TRUE(contains(run({four.raw(), DType::f32, {5}}), "out of bounds"));
  rig.device.enqueue(*stream, claim("k", {four}, {}));
  stream->record().wait();
  buffer = {};
  EXPECT_TRUE(contains(run(four), "used after free"));
  rig.device.check();
}

TEST(Memory, KernelsOpenOnlyWhatTheyDeclare) {
  Rig rig;
  const auto stream = rig.device.stream("s", Purpose::compute, 0);
  const Buffer buffer = rig.device.allocate(64, "weights");
  const Tensor declared = buffer.tensor(DType::f32, {8});
  const Tensor other = buffer.tensor(DType::f32, {1}, 32);
  const auto opens = [&](Tensor tensor) {
    return Kernel{"k", {declared}, {}, [tensor](KernelContext& context) { (void)context.open(tensor); }};
  };
  rig.device.enqueue(*stream, opens(declared.flat(7, 1)));
  rig.device.enqueue(*stream, opens({}));
  stream->record().wait();
  rig.device.enqueue(*stream, opens(other));
  EXPECT_TRUE(contains(message_of<InternalError>([&] { stream->record().wait(); }), "did not declare"));
}

TEST(Memory, StreamsAndLanesRefuseTheWrongKind) {
  Rig rig;
  const auto stream = rig.device.stream("s", Purpose::d2h, 0);
  const auto lane = rig.device.lane("l", Purpose::adam);
  const Buffer buffer = rig.device.allocate(16, "weights");
  const Tensor device = buffer.tensor(DType::f32, {4});
  std::vector<float> values(4);
  const Tensor pageable(values.data(), DType::f32, {4});
  EXPECT_TRUE(contains(message_of<InternalError>([&] { stream->copy(pageable, device); }), "pinned"));
  EXPECT_TRUE(contains(message_of<InternalError>([&] { stream->fill_zero(pageable); }), "pinned"));
  EXPECT_TRUE(contains(message_of<InternalError>([&] { lane->copy(pageable, device); }), "device memory"));
  EXPECT_TRUE(contains(message_of<InternalError>([&] {
                         lane->run({"t", {device}, {}, [] {}});
                       }),
                       "device memory"));
  EXPECT_TRUE(contains(message_of<InternalError>([&] { rig.device.enqueue(*lane, claim("k", {}, {})); }),
                       "no stream of this device"));
  {
    const Pin pin = rig.device.pin(std::as_writable_bytes(std::span(values)));
    EXPECT_THROW((void)rig.device.pin(std::as_writable_bytes(std::span(values).subspan(1, 1))),
                 InternalError);
    stream->copy(pageable, device);
    stream->record().wait();
  }
  EXPECT_THROW(stream->copy(pageable, device), InternalError);
}

TEST(Memory, CopiesNeedEqualTypesAndSizesThatDoNotOverlap) {
  Rig rig;
  const auto stream = rig.device.stream("s", Purpose::compute, 0);
  const Buffer a = rig.device.allocate(64, "weights");
  const Buffer b = rig.device.allocate(64, "weights");
  EXPECT_THROW(stream->copy(a.tensor(DType::f32, {4}), b.tensor(DType::f32, {5})), InternalError);
  EXPECT_THROW(stream->copy(a.tensor(DType::f32, {4}), b.tensor(DType::i32, {4})), InternalError);
  EXPECT_THROW(stream->copy(a.tensor(DType::f32, {4}), a.tensor(DType::f32, {4}, 12)), InternalError);
  stream->copy(a.tensor(DType::f32, {2, 2}), b.tensor(DType::f32, {4}));
}

TEST(Memory, ChaosFillsNewAndScratchMemoryWithNaNPatterns) {
  Rig rig(7);
  const auto stream = rig.device.stream("s", Purpose::compute, 0);
  const Buffer buffer = rig.device.allocate(16, "weights");
  const Tensor four = buffer.tensor(DType::f32, {4});
  Pinned<float> host(rig.device, 4);
  const auto bits = [&] {
    stream->copy(host.tensor(), four);
    stream->record().wait();
    return float_bits(host.values()[3]);
  };
  EXPECT_EQ(bits(), 0xFFFFFFFFu);
  stream->fill_zero(four);
  EXPECT_EQ(bits(), 0u);
  rig.device.scratch(*stream, four);
  EXPECT_EQ(bits(), 0xFFFFFFFFu);
}

}  // namespace
}  // namespace tandem::gpu
