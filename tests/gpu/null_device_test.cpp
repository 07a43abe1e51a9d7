// The null device: memory by address only, operations listed in order, and the faults that it still finds.
#include <gtest/gtest.h>

#include <array>

#include "core/device/ops.h"
#include "gpu/backend.h"
#include "gpu/null/null_workers.h"
#include "gpu/null/recording.h"
#include "tests/core/expect_error.h"

namespace tandem::gpu {
namespace {

constexpr std::array<std::string_view, 1> kWritten{"batches"};

/// A null device with one stream and one lane.
struct Rig {
  Recording recording;
  NullMemory host{recording.memory(), kWritten};
  std::unique_ptr<Device> device = open_null(recording);
  std::unique_ptr<Stream> stream = device->stream("compute", Purpose::compute, 0);
  std::unique_ptr<HostLane> lane = device->lane("optimizer", Purpose::adam);

  static std::unique_ptr<Device> open_null(Recording& recording) {
    OpenOptions options;
    options.recording = &recording;
    return open("null", options);
  }
};

std::span<std::byte> span_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.raw()), buffer.bytes()};
}

TEST(MemoryNull, CountsWhatItDoesNotTake) {
  Rig rig;
  constexpr size_t kHuge = size_t{1} << 40;
  {
    const Buffer device = rig.device->allocate(kHuge, "weights"),
                 host = rig.host.allocate(kHuge + 1, "slots"), other = rig.host.allocate(5, "master"),
                 none = rig.host.allocate(0, "empty");
    EXPECT_TRUE(none.empty());
    const Pin pin = rig.device->pin(span_of(host).first(kHuge));
    EXPECT_EQ(rig.device->counters().total().now, kHuge);
    EXPECT_EQ(rig.host.counters().total().now, kHuge + 6);
    EXPECT_EQ(rig.recording.memory().pinned().scopes().at("slots").now, kHuge);
    EXPECT_EQ(rig.recording.memory().pinned().total().now, kHuge);
  }
  for (const MemoryCounters* counters :
       {&rig.recording.memory().device(), &rig.recording.memory().host(), &rig.recording.memory().pinned()}) {
    EXPECT_EQ(counters->total().now, 0u);
    EXPECT_GE(counters->total().peak, kHuge);
  }
}

TEST(MemoryNullDeathTest, NobodyCanTouchIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rig rig;
  const Buffer device = rig.device->allocate(64, "weights"), host = rig.host.allocate(64, "slots"),
               batches = rig.host.allocate(64, "batches");
  const auto write = [](const Buffer& buffer) { *static_cast<volatile char*>(buffer.raw()) = 1; };
  write(batches);
  EXPECT_DEATH(write(device), "");
  EXPECT_DEATH(write(host), "");
}

TEST(MemoryNull, ListsOperationsWithTheirBytesAndWaits) {
  Rig rig;
  const Buffer memory = rig.device->allocate(4096, "weights"), host = rig.host.allocate(4096, "slots");
  const Pin pin = rig.device->pin(span_of(host));
  const auto at = [&](size_t offset, int64_t rows, int64_t columns) {
    return memory.tensor(DType::f32, {rows, columns}, offset);
  };
  rig.stream->range("forward");
  rig.device->ops().linear_forward(*rig.stream, at(0, 2, 3), at(256, 2, 5), at(512, 3, 5), Into::replace);
  const Fence computed = rig.stream->record();
  rig.stream->copy(host.tensor(DType::f32, {6}), at(0, 2, 3).flat());
  const Fence copied = rig.stream->record();
  bool ran = false;
  rig.lane->wait(copied);
  rig.lane->wait(computed);  // follows from the one before
  rig.lane->run({"adam x", {host.tensor(DType::f32, {6})}, {}, [&] {
                   ran = true;
                   rig.stream->fill_zero(at(0, 1, 1));
                 }});
  EXPECT_TRUE(ran);
  EXPECT_TRUE(copied.passed());
  const std::vector<RecordedOperation>& list = rig.recording.operations();
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].name, "linear_forward");
  EXPECT_EQ(list[0].range, "forward");
  EXPECT_EQ(list[0].read_bytes, (2 * 5 + 3 * 5) * 4u);
  EXPECT_EQ(list[0].written_bytes, 2 * 3 * 4u);
  EXPECT_EQ(list[0].flops, 2.0 * 2 * 3 * 5);
  EXPECT_EQ(list[1].name, "copy d2h");
  EXPECT_TRUE(list[1].waits.empty());
  EXPECT_EQ(list[2].name, "adam x");
  EXPECT_EQ(list[2].waits, (std::vector<RecordedPlace>{{0, 2}}));
  EXPECT_EQ(list[3].name, "fill_zero");
  EXPECT_EQ(rig.recording.streams().at(0).operations, 3);
}

/// The same step again has the same digest, and any change another.
TEST(MemoryNull, DigestsAStepByAllButItsRanges) {
  Rig rig;
  const Buffer memory = rig.device->allocate(4096, "weights");
  const auto step = [&](int64_t fills, int64_t rows, bool waits, const char* range) {
    rig.recording.begin_step();
    rig.stream->range(range);
    for (int64_t i = 0; i < fills; ++i) rig.stream->fill_zero(memory.tensor(DType::f32, {rows}));
    if (waits) rig.lane->wait(rig.stream->record());
    rig.lane->run({"decide", {}, {}, [] {}});
    return rig.recording.digest();
  };
  const uint64_t digest = step(2, 3, true, "step 0");
  EXPECT_EQ(step(2, 3, true, "step 1"), digest);
  EXPECT_EQ(rig.recording.operations().back().waits, (std::vector<RecordedPlace>{{0, 2}}));
  EXPECT_NE(step(3, 3, true, "step 1"), digest);
  EXPECT_NE(step(2, 4, true, "step 1"), digest);
  EXPECT_NE(step(2, 3, false, "step 1"), digest);
  EXPECT_EQ(step(2, 3, true, "step 1"), digest);
}

TEST(MemoryNull, ScalarsReadZeroAndWorkersRunNothing) {
  Rig rig;
  const Buffer host = rig.host.allocate(16, "scalars");
  EXPECT_THROW((void)rig.device->read({host.tensor(DType::f64, {1})}), InternalError) << "not pinned";
  const Pin pin = rig.device->pin(span_of(host));
  EXPECT_EQ(rig.device->read({host.tensor(DType::f64, {1}, 8)}), 0.0);
  NullWorkers workers;
  workers.ranges(100, 1, [](int64_t, int64_t) { FAIL() << "ran"; });
}

TEST(MemoryNull, FindsFaultsAsTheHostDeviceDoes) {
  Rig rig, other;
  const Buffer memory = rig.device->allocate(4096, "weights"), host = rig.host.allocate(64, "master");
  const Tensor device = memory.tensor(DType::f32, {4, 4}), pageable = host.tensor(DType::f32, {4, 4});
  Stream& stream = *rig.stream;
  EXPECT_THROW(rig.device->ops().add(stream, device, device, pageable), InternalError);
  EXPECT_THROW(rig.device->ops().add(*other.stream, device, device, device), InternalError);
  EXPECT_THROW(rig.device->ops().linear_forward(stream, device, device.rows(0, 3), device, Into::replace),
               InternalError);
  EXPECT_THROW(stream.copy(device, pageable), InternalError);
  EXPECT_THROW(stream.copy(device.flat(), device.rows(0, 1).flat()), InternalError);
  EXPECT_THROW(rig.lane->run({"adam", {device}, {}, [] {}}), InternalError);
  EXPECT_THROW(stream.wait(other.stream->record()), InternalError);
  EXPECT_THROW((void)rig.device->promise("upload")->recorded(), InternalError);
  Tensor gone;
  {
    const Buffer freed = rig.device->allocate(64, "slots");
    gone = freed.tensor(DType::f32, {16});
  }
  EXPECT_THROW(stream.fill_zero(gone), InternalError);
  rig.device->fail(std::make_exception_ptr(std::runtime_error("first")));
  EXPECT_THROW(stream.fill_zero(device), std::runtime_error);
  EXPECT_THROW(rig.device->check(), std::runtime_error);
}

TEST(MemoryNull, NoConfigNamesIt) {
  expect_error(Status::usage, {"unknown device \"null\""}, [] { (void)why_absent("null"); });
}

}  // namespace
}  // namespace tandem::gpu
