// What is ordered between CUDA streams, lanes and threads: under every seed the same values, and other ones
// where a wait is missing.
#include <future>
#include <set>
#include <thread>

#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

constexpr uint64_t kSeeds = 40;

/// A step of four rounds in small: numbers go to the card, from stream to stream, back, through a task, and
/// up again.
struct Scene : Rig {
  using Rig::Rig;
  Buffer buffer = device.allocate(64, "weights"), other = device.allocate(64, "gradients");
  Tensor weights = buffer.tensor(DType::f32, {16}), gradients = other.tensor(DType::f32, {16});
  Pinned<float> host{device, 16}, result{device, 16};
  std::unique_ptr<Stream> compute = device.stream("compute", Purpose::compute, 2);
  std::unique_ptr<Stream> d2h = device.stream("d2h", Purpose::d2h, 0);
  std::unique_ptr<Stream> h2d = device.stream("h2d", Purpose::h2d, 0);
  std::unique_ptr<HostLane> lane = device.lane("cpu", Purpose::adam);

  /// host = 1 at first; each round adds one to it. Leaves out the wait of that number.
  float run(int rounds, int left_out = -1) {
    int waits = 0;
    const auto wait = [&](Stream& stream, const Fence& fence) {
      if (waits++ % 4 != left_out) stream.wait(fence);
    };
    lane->run({"init", {}, {host.tensor()}, [this] { add_one(); }});
    for (int round = 0; round < rounds; ++round) {
      wait(*h2d, lane->record());
      h2d->copy(weights, host.tensor());
      wait(*compute, h2d->record());
      compute->copy(gradients, weights);
      wait(*d2h, compute->record());
      d2h->copy(host.tensor(), gradients);
      wait(*lane, d2h->record());
      lane->run({"adam", {host.tensor()}, {host.tensor()}, [this] { add_one(); }});
    }
    h2d->wait(lane->record());
    h2d->copy(result.tensor(), host.tensor());
    h2d->record().wait();
    d2h->record().wait();
    compute->record().wait();
    lane->record().wait();
    return result.values()[15];
  }
  void add_one() {
    for (float& value : host.values()) value += 1;
  }
};

TEST(FakeCudaOrder, StreamsAndLanesRunAsTheirWaitsSay) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Scene scene(seed);
    EXPECT_EQ(scene.run(4), 5.0f) << seed;
  }
}

/// Between streams the seeded order alone decides, so a missing wait gives another number for some seed.
TEST(FakeCudaOrder, AMissingWaitBetweenStreamsShows) {
  for (const int left_out : {1, 2}) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      Scene scene(seed);
      cuda_fake::forgive_order();
      if (scene.run(4, left_out) != 5.0f) ++wrong;
    }
    EXPECT_GT(wrong, static_cast<int>(kSeeds) / 4) << left_out;
  }
}

/// Nor does it take a seed that shows it: the fake's clocks see it whatever ran first. (Where threads take
/// part, they take what one of them waited for as known to all.)
TEST(FakeCudaOrder, EachWaitForAnEventThatIsLeftOutIsAFault) {
  int mutants = 0;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (int64_t wait = 0; wait < 12; ++wait) {
      Scene scene(seed);
      cuda_fake::drop_wait(wait);
      for (int round = 0; round < 4; ++round) {
        scene.h2d->copy(scene.weights, scene.host.tensor());
        scene.compute->wait(scene.h2d->record());
        scene.compute->copy(scene.gradients, scene.weights);
        scene.d2h->wait(scene.compute->record());
        scene.d2h->copy(scene.host.tensor(), scene.gradients);
        scene.h2d->wait(scene.d2h->record());
      }
      scene.h2d->fill_zero(scene.host.tensor());
      scene.h2d->record().wait();
      if (cuda_fake::event_waits() <= wait) break;  // the others had passed when they were asked for
      ++mutants;
      const std::vector<std::string> faults = cuda_fake::faults();
      cuda_fake::clear_faults();
      ASSERT_FALSE(faults.empty()) << "seed " << seed << ", wait " << wait;
      EXPECT_TRUE(contains(faults[0], "copy")) << faults[0];
    }
  EXPECT_GE(mutants, 25);
}

/// A stream does not pass a task that is not done, and nothing but that task is held up by it.
TEST(FakeCudaOrder, AStreamWaitsForATaskWithoutBlockingAnyThread) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Scene scene(seed);
    std::promise<void> go;
    scene.lane->run({"held", {}, {}, [&] { go.get_future().wait(); }});
    const Fence held = scene.lane->record();
    scene.h2d->wait(held);
    scene.h2d->fill_zero(scene.weights);
    const Fence after = scene.h2d->record();
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(after.passed());
    scene.compute->fill_zero(scene.gradients);
    scene.compute->record().wait();  // another stream goes on
    EXPECT_FALSE(held.passed());
    go.set_value();
    after.wait();
    EXPECT_TRUE(held.passed() && after.passed());
  }
}

/// The second of two fences of a lane is not satisfied by the first one.
TEST(FakeCudaOrder, FencesOfOneLaneAreToldApart) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Scene scene(seed);
    std::promise<void> go;
    scene.lane->run({"first", {}, {}, [] {}});
    const Fence first = scene.lane->record();
    scene.lane->run({"second", {}, {}, [&] { go.get_future().wait(); }});
    const Fence second = scene.lane->record();
    scene.h2d->wait(first);
    const Fence after_first = scene.h2d->record();
    scene.h2d->wait(second);
    const Fence after_second = scene.h2d->record();
    after_first.wait();
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(after_second.passed());
    go.set_value();
    after_second.wait();
  }
}

TEST(FakeCudaOrder, ATaskEnqueuesAndFulfils) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Scene scene(seed);
    const auto promise = scene.device.promise("uploaded");
    scene.lane->run({"adam", {}, {scene.host.tensor()}, [&] {
                       scene.add_one();
                       scene.h2d->copy(scene.weights, scene.host.tensor());
                       promise->fulfil(scene.h2d->record());
                     }});
    scene.compute->wait(promise->recorded());
    scene.compute->copy(scene.result.tensor(), scene.weights);
    scene.compute->record().wait();
    EXPECT_EQ(scene.result.values()[0], 1.0f);
    EXPECT_THROW(promise->fulfil({}), InternalError);
  }
}

TEST(FakeCudaOrder, WaitingInATaskIsAnError) {
  Scene scene;
  std::promise<void> go;
  const auto gate = scene.device.lane("gate", Purpose::other);
  gate->run({"held", {}, {}, [&] { go.get_future().wait(); }});
  scene.h2d->wait(gate->record());
  const Fence fence = scene.h2d->record();
  scene.lane->run({"waits", {}, {}, [&] { fence.wait(); }});
  const std::string message = message_of<InternalError>([&] { scene.lane->record().wait(); });
  EXPECT_TRUE(contains(message, "a task must not")) << message;
  go.set_value();
}

TEST(FakeCudaOrder, FencesOfAnotherDeviceAreRefused) {
  Scene scene;
  CudaDevice other({}, {});
  const auto stream = other.stream("s", Purpose::compute, 0);
  const auto lane = other.lane("l", Purpose::adam);
  for (const Fence& fence : {stream->record(), lane->record()}) {
    EXPECT_THROW(scene.compute->wait(fence), InternalError);
    EXPECT_THROW(scene.lane->wait(fence), InternalError);
  }
}

/// Fences are values: each keeps its event, which is used again once the last copy is gone.
TEST(FakeCudaOrder, EventsAreUsedAgainWhenTheirFencesAreGone) {
  Scene scene;
  (void)scene.run(2);
  const size_t events = cuda_fake::live().events;
  for (int i = 0; i < 50; ++i) (void)scene.run(2);
  EXPECT_LE(cuda_fake::live().events, events + 20);
  std::vector<Fence> kept;
  for (int i = 0; i < 100; ++i) kept.push_back(scene.compute->record());
  EXPECT_GE(cuda_fake::live().events, 100u);
  kept.back().wait();
  for (const Fence& fence : kept) EXPECT_TRUE(fence.passed());
}

TEST(FakeCudaOrder, LanesOfOneThreadTakeTurnsWhileStreamsHoldThem) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Scene scene(seed);
    std::promise<void> go;
    const auto gate = scene.device.lane("gate", Purpose::other);
    gate->run({"held", {}, {}, [&] { go.get_future().wait(); }});
    scene.d2h->wait(gate->record());
    const std::vector<std::string> names = {"a", "b"};
    const auto lanes = scene.device.lanes(names, Purpose::adam);
    std::string order;
    lanes[0]->wait(scene.d2h->record());
    lanes[0]->run({"a", {}, {}, [&] { order += 'a'; }});
    lanes[1]->run({"b", {}, {}, [&] { order += 'b'; }});
    lanes[1]->record().wait();
    EXPECT_EQ(order, "b");
    go.set_value();
    lanes[0]->record().wait();
    EXPECT_EQ(order, "ba");
  }
}

/// Words are used by one lane after the other and never run out.
TEST(FakeCudaOrder, LanesComeAndGo) {
  Scene scene(3);
  for (int i = 0; i < 1100; ++i) {
    const auto lane = scene.device.lane("short", Purpose::other);
    lane->run({"task", {}, {}, [&] { scene.host.values()[0] += 1; }});
    scene.compute->wait(lane->record());
    scene.compute->copy(scene.result.tensor(), scene.host.tensor());
    scene.compute->record().wait();
    ASSERT_EQ(scene.result.values()[0], static_cast<float>(i + 1));
  }
}

TEST(FakeCudaTimes, WaitsAreNamedAfterWhoIsAwaited) {
  Scene scene;
  const auto clock = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  /// A stream waits for a task that takes 30 ms from when the stream stands in that wait. The end of it.
  const auto hold = [&](Stream& waiter) {
    std::promise<void> go;
    scene.lane->run({"adam", {}, {}, [&] {
                       go.get_future().wait();
                       std::this_thread::sleep_for(std::chrono::milliseconds(30));
                     }});
    waiter.wait(scene.lane->record());
    if (&waiter != scene.compute.get()) scene.compute->wait(waiter.record());
    const Fence end = scene.compute->record();
    for (int i = 0; i < 200; ++i) EXPECT_FALSE(end.passed());  // each lets the fake run a little
    go.set_value();
    end.wait();
    return end;
  };
  const int64_t before = clock();
  const Fence begin = scene.compute->record();
  begin.wait();
  const Fence middle = hold(*scene.compute);
  const Fence end = hold(*scene.h2d);
  const int64_t after = clock();
  const StreamTimes first = scene.compute->times(begin, middle), second = scene.compute->times(middle, end),
                    both = scene.compute->times(begin, end);
  EXPECT_GE(first.adam_ms, 29);  // the nap; how long the rest takes is the machine's affair
  EXPECT_EQ(first.h2d_ms, 0);
  EXPECT_GE(second.h2d_ms, 29);  // the one that is awaited, not what that waits for
  EXPECT_EQ(second.adam_ms, 0);
  for (const StreamTimes& times : {first, second, both})
    EXPECT_NEAR(times.busy_ms + times.d2h_ms + times.adam_ms + times.h2d_ms + times.other_ms, times.total_ms,
                1e-6);
  EXPECT_NEAR(both.adam_ms, first.adam_ms, 1e-3);
  EXPECT_NEAR(both.total_ms, first.total_ms + second.total_ms, 1e-2);
  EXPECT_GE(first.from_ns, before - 100'000);
  EXPECT_LE(second.to_ns, after + 100'000);
  EXPECT_NEAR(static_cast<double>(first.to_ns - first.from_ns) * 1e-6, first.total_ms, 1e-2);
  EXPECT_THROW((void)scene.compute->times(end, begin), InternalError);
  EXPECT_THROW((void)scene.h2d->times(begin, end), InternalError);
}

}  // namespace
}  // namespace tandem::gpu::cuda
