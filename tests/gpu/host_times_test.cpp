#include <chrono>
#include <random>
#include <thread>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

constexpr Nanos kMs = 1'000'000;

/// A moment at the end of what a meter has seen.
StreamTimes since_zero(const Meter& meter) { return times_between(Spent{}, meter.passed().spent); }

TEST(NumbersTimes, IdleTimeGoesToWhatTheAwaitedStreamDid) {
  // compute: busy 0-10. d2h waits for it, copies 12-20. adam waits for that, runs 20-50. h2d waits, uploads
  // 50-55.
  Meter compute(Purpose::compute, 0);
  Meter d2h(Purpose::d2h, 0);
  Meter adam(Purpose::adam, 0);
  Meter h2d(Purpose::h2d, 0);
  compute.busy_until(10 * kMs);
  d2h.waited_until(11 * kMs, 0, compute.passed());
  d2h.idle_until(12 * kMs);
  d2h.busy_until(20 * kMs);
  adam.waited_until(20 * kMs, 0, d2h.passed());
  adam.busy_until(50 * kMs);
  h2d.waited_until(50 * kMs, 1 * kMs, adam.passed());
  h2d.busy_until(55 * kMs);
  // compute waits for the upload from 10 on, and works 56-60.
  compute.waited_until(56 * kMs, 3 * kMs, h2d.passed());
  compute.busy_until(60 * kMs);
  const StreamTimes times = since_zero(compute);
  EXPECT_DOUBLE_EQ(times.total_ms, 60);
  EXPECT_DOUBLE_EQ(times.busy_ms, 14);
  EXPECT_DOUBLE_EQ(times.other_ms, 2);    // 10-12: the copy had not begun, for no reason of the streams'
  EXPECT_DOUBLE_EQ(times.d2h_ms, 8);      // 12-20
  EXPECT_DOUBLE_EQ(times.adam_ms, 30);    // 20-50
  EXPECT_DOUBLE_EQ(times.h2d_ms, 5 + 1);  // 50-55, and until the wait was over
  const StreamTimes upload = since_zero(h2d);
  EXPECT_DOUBLE_EQ(upload.other_ms, 12);  // 0-1 nothing queued, 1-10 compute's work, 10-12
  EXPECT_DOUBLE_EQ(upload.d2h_ms, 8);
  EXPECT_DOUBLE_EQ(upload.adam_ms, 30);
  EXPECT_DOUBLE_EQ(upload.busy_ms, 5);
}

TEST(NumbersTimes, AnEmptyQueueAndAPassedFenceAreOther) {
  Meter d2h(Purpose::d2h, 0);
  d2h.busy_until(5 * kMs);
  Meter compute(Purpose::compute, 0);
  compute.busy_until(6 * kMs);
  compute.waited_until(8 * kMs, 2 * kMs, d2h.passed());  // had passed at 5
  compute.busy_until(9 * kMs);
  compute.idle_until(12 * kMs);
  EXPECT_DOUBLE_EQ(since_zero(compute).other_ms, 5);
  d2h.busy_until(20 * kMs);
  compute.waited_until(20 * kMs, 18 * kMs, d2h.passed());  // enqueued late: nothing held the stream before 18
  EXPECT_DOUBLE_EQ(since_zero(compute).other_ms, 11);
  EXPECT_DOUBLE_EQ(since_zero(compute).d2h_ms, 2);
}

TEST(NumbersTimes, AnEmptyQueueIsBlamedOnWhatHeldUpWhoeverFillsIt) {
  // The optimizer runs 2-30. The host works until 5, waits for it until 30 and enqueues at 31.
  Meter adam(Purpose::adam, 0);
  adam.idle_until(2 * kMs);
  adam.busy_until(30 * kMs);
  Meter host(Purpose::other, 0);
  host.busy_until(5 * kMs);
  host.waited_until(30 * kMs, 5 * kMs, adam.passed());
  host.busy_until(31 * kMs);
  Meter compute(Purpose::compute, 0);
  compute.busy_until(4 * kMs);
  compute.starved_until(31 * kMs, host.passed());
  compute.idle_until(32 * kMs);
  compute.busy_until(40 * kMs);
  const StreamTimes times = since_zero(compute);
  EXPECT_DOUBLE_EQ(times.busy_ms, 4 + 8);
  EXPECT_DOUBLE_EQ(times.adam_ms, 25);          // 5-30
  EXPECT_DOUBLE_EQ(times.other_ms, 1 + 1 + 1);  // 4-5 and 30-31 the host's own work, 31-32 waking up
}

TEST(NumbersTimes, AWaitOfTheHostThreadIsSeenInTheStreamThatItStarves) {
  Rig rig;
  const auto compute = rig.device.stream("compute", Purpose::compute, 0);
  const auto lane = rig.device.lane("optimizer", Purpose::adam);
  const auto promise = rig.device.promise("upload");
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(250)); };
  const Fence begin = compute->record();
  begin.wait();
  lane->run({"adam", {}, {}, nap});
  lane->record().wait();
  const Fence middle = compute->record();
  lane->run({"publish", {}, {}, [&] {
               nap();
               promise->fulfil(Fence{});
             }});
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the task began before the wait for it
  (void)promise->recorded();
  const Fence end = compute->record();
  end.wait();
  for (const auto& [from, to] : {std::pair{begin, middle}, {middle, end}}) {
    const StreamTimes times = compute->times(from, to);
    // No more than the nap is certain, less what a busy machine kept this thread from waiting.
    EXPECT_GE(times.adam_ms, 60);
    EXPECT_NEAR(times.busy_ms + times.d2h_ms + times.adam_ms + times.h2d_ms + times.other_ms, times.total_ms,
                1e-6);
  }
}

TEST(NumbersTimes, ThePastIsBounded) {
  Meter d2h(Purpose::d2h, 0);
  Nanos now = 0;
  for (int i = 0; i < 100; ++i) {
    d2h.busy_until(now += kMs);
    d2h.idle_until(now += kMs);
  }
  EXPECT_EQ(d2h.passed().past.pieces().size(), Past::kPieces);
  Meter compute(Purpose::compute, 0);
  compute.waited_until(now, 0, d2h.passed());
  EXPECT_DOUBLE_EQ(since_zero(compute).d2h_ms, 16);  // of 32 pieces every other one
  EXPECT_DOUBLE_EQ(since_zero(compute).other_ms, 184);
}

TEST(NumbersTimes, BusyAndCausesMakeTheTotalBetweenAnyTwoFences) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), std::optional<uint64_t>(4)}) {
    Rig rig(mode);
    const Buffer buffer = rig.device.allocate(1 << 16, "weights");
    const Tensor all = buffer.tensor(DType::f32, {1 << 14});
    Pinned<float> host(rig.device, 1 << 14);
    const auto compute = rig.device.stream("compute", Purpose::compute, 0);
    const auto d2h = rig.device.stream("d2h", Purpose::d2h, 0);
    const auto lane = rig.device.lane("cpu", Purpose::adam);
    compute->fill_zero(all);
    std::vector<Fence> fences = {compute->record()};
    for (int round = 0; round < 5; ++round) {
      rig.device.enqueue(*compute, add_value(all, 1));
      d2h->wait(compute->record());
      d2h->copy(host.tensor(), all);
      lane->wait(d2h->record());
      lane->run({"adam", {host.tensor()}, {}, [] {}});
      compute->wait(lane->record());
      fences.push_back(compute->record());
    }
    EXPECT_THROW((void)compute->times(fences[0], Fence()), InternalError);
    fences.back().wait();
    EXPECT_THROW((void)compute->times(fences[5], fences[0]), InternalError);
    EXPECT_THROW((void)d2h->times(fences[0], fences[5]), InternalError);
    for (size_t from = 0; from < fences.size(); ++from)
      for (size_t to = from; to < fences.size(); ++to) {
        const StreamTimes times = compute->times(fences[from], fences[to]);
        const double sum = times.busy_ms + times.d2h_ms + times.adam_ms + times.h2d_ms + times.other_ms;
        EXPECT_NEAR(sum, times.total_ms, 1e-9 * (1 + times.total_ms));  // integers of ns, summed in double
        EXPECT_EQ(times.total_ms > 0, to > from);
        EXPECT_EQ(times.busy_ms > 0, to > from);
      }
  }
}

}  // namespace
}  // namespace tandem::gpu
