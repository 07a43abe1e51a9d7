// Vector clocks: what is not ordered is an error whatever the timing was, what is ordered is none.
#include <future>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

/// Two streams, a lane, one device buffer and two pinned ones.
struct Scene : Rig {
  using Rig::Rig;
  Buffer buffer = device.allocate(64, "gradients");
  Pinned<float> host{device, 16};
  Pinned<double> landed{device, 1};
  Tensor on_device = buffer.tensor(DType::f32, {16});
  Tensor on_host = host.tensor();
  // Streams end first: they drain before their memory goes.
  std::unique_ptr<Stream> compute = device.stream("compute", Purpose::compute, 0);
  std::unique_ptr<Stream> d2h = device.stream("d2h", Purpose::d2h, 0);
  std::unique_ptr<HostLane> lane = device.lane("cpu", Purpose::adam);
};

struct Pair {
  const char* first;  // as the message names it
  const char* second;
  const char* verb;  // of the second
  const char* done;  // by the first
  Stream* (*first_stream)(Scene&);
  Stream* (*second_stream)(Scene&);
  void (*enqueue_first)(Scene&);
  void (*enqueue_second)(Scene&);
};

Stream* compute_of(Scene& s) { return s.compute.get(); }
Stream* d2h_of(Scene& s) { return s.d2h.get(); }
Stream* lane_of(Scene& s) { return s.lane.get(); }

const Pair kPairs[] = {
    {"kernel \"write\" on stream \"compute\" (range \"before\")", "copy on stream \"d2h\" (range \"after\")",
     "reads", "written", compute_of, d2h_of,
     [](Scene& s) { s.device.enqueue(*s.compute, claim("write", {}, {s.on_device})); },
     [](Scene& s) { s.d2h->copy(s.on_host, s.on_device); }},
    {"copy on stream \"d2h\" (range \"before\")", "kernel \"write\" on stream \"compute\" (range \"after\")",
     "writes", "read", d2h_of, compute_of, [](Scene& s) { s.d2h->copy(s.on_host, s.on_device); },
     [](Scene& s) { s.device.enqueue(*s.compute, claim("write", {}, {s.on_device.flat(15, 1)})); }},
    {"fill_zero on stream \"compute\" (range \"before\")", "fill_zero on stream \"d2h\" (range \"after\")",
     "writes", "written", compute_of, d2h_of, [](Scene& s) { s.compute->fill_zero(s.on_device.flat(3, 4)); },
     [](Scene& s) { s.d2h->fill_zero(s.on_device.flat(6, 4)); }},
    {"kernel \"read\" on stream \"compute\" (range \"before\")",
     "scratch on stream \"d2h\" (range \"after\")", "writes", "read", compute_of, d2h_of,
     [](Scene& s) { s.device.enqueue(*s.compute, claim("read", {s.on_device}, {})); },
     [](Scene& s) { s.device.scratch(*s.d2h, s.on_device); }},
    {"copy on stream \"d2h\" (range \"before\")", "task \"adam\" on lane \"cpu\" (range \"after\")", "reads",
     "written", d2h_of, lane_of, [](Scene& s) { s.d2h->copy(s.on_host, s.on_device); },
     [](Scene& s) {
       s.lane->run({"adam", {s.on_host}, {}, [] {}});
     }},
    {"task \"adam\" on lane \"cpu\" (range \"before\")", "copy on stream \"d2h\" (range \"after\")", "reads",
     "written", lane_of, d2h_of,
     [](Scene& s) {
       s.lane->run({"adam", {}, {s.on_host}, [] {}});
     },
     [](Scene& s) { s.d2h->copy(s.on_device, s.on_host); }},
};

/// Both modes: threads, and a seed of chaos.
const std::optional<uint64_t> kModes[] = {std::nullopt, 3};

TEST(ChaosOrder, UnorderedConflictsAreErrorsThatNameBoth) {
  for (const auto mode : kModes)
    for (const Pair& pair : kPairs) {
      Scene scene(mode);
      pair.first_stream(scene)->range("before");
      pair.second_stream(scene)->range("after");
      pair.enqueue_first(scene);
      const std::string message = message_of<OrderError>([&] { pair.enqueue_second(scene); });
      EXPECT_TRUE(contains(message, pair.first)) << message;
      EXPECT_TRUE(contains(message, std::string(pair.second) + " " + pair.verb)) << message;
      EXPECT_TRUE(contains(message, std::string("which are ") + pair.done + " by " + pair.first)) << message;
      scene.compute->record().wait();  // the error is the caller's; the device goes on
    }
}

TEST(ChaosOrder, TheFencedTwinPasses) {
  for (const auto mode : kModes)
    for (const Pair& pair : kPairs) {
      Scene scene(mode);
      pair.enqueue_first(scene);
      pair.second_stream(scene)->wait(pair.first_stream(scene)->record());
      pair.enqueue_second(scene);
      pair.second_stream(scene)->record().wait();
    }
}

TEST(ChaosOrder, AFenceOrdersOnlyWhatCameBeforeIt) {
  Scene scene;
  const Fence early = scene.compute->record();
  scene.compute->fill_zero(scene.on_device);
  scene.d2h->wait(early);
  EXPECT_THROW(scene.d2h->copy(scene.on_host, scene.on_device), OrderError);
}

TEST(ChaosOrder, ReadersNeedNoOrderAmongThemselvesButTheWriterNeedsAll) {
  Scene scene;
  const auto third = scene.device.stream("third", Purpose::other, 0);
  const auto reads = [&](Stream& stream) {
    scene.device.enqueue(stream, claim("read", {scene.on_device}, {}));
  };
  reads(*scene.compute);
  reads(*scene.d2h);
  third->wait(scene.compute->record());
  EXPECT_THROW(third->fill_zero(scene.on_device), OrderError);
  third->wait(scene.d2h->record());
  third->fill_zero(scene.on_device);
}

TEST(ChaosOrder, IsTransitive) {
  Scene scene;
  const auto third = scene.device.stream("third", Purpose::other, 0);
  scene.device.enqueue(*scene.compute, claim("write", {}, {scene.on_device}));
  scene.d2h->wait(scene.compute->record());
  third->wait(scene.d2h->record());
  scene.device.enqueue(*third, claim("rewrite", {scene.on_device}, {scene.on_device}));
  EXPECT_THROW(scene.d2h->copy(scene.on_host, scene.on_device), OrderError);  // not the other way round
}

TEST(ChaosOrder, AHostThatWaitedIsOrderedAHostThatLookedIsNot) {
  Scene scene;
  scene.device.enqueue(*scene.compute, claim("write", {}, {scene.on_device}));
  const Fence fence = scene.compute->record();
  while (!fence.passed()) std::this_thread::yield();
  EXPECT_THROW(scene.d2h->copy(scene.on_host, scene.on_device), OrderError);
  fence.wait();
  scene.d2h->copy(scene.on_host, scene.on_device);
}

TEST(ChaosOrder, AnotherHostThreadKnowsOnlyWhatItWaitedFor) {
  Scene scene;
  scene.device.enqueue(*scene.compute, claim("write", {}, {scene.on_device}));
  const Fence fence = scene.compute->record();
  fence.wait();
  std::async(std::launch::async, [&] {
    EXPECT_THROW(scene.d2h->copy(scene.on_host, scene.on_device), OrderError);
    fence.wait();
    scene.d2h->copy(scene.on_host, scene.on_device);
  }).get();
}

TEST(ChaosOrder, ATaskActsWithTheClockOfItsLane) {
  for (const auto mode : kModes) {
    Scene scene(mode);
    scene.lane->run({"adam", {}, {scene.on_host}, [&] { scene.d2h->copy(scene.on_device, scene.on_host); }});
    scene.lane->record().wait();
    scene.d2h->record().wait();
    scene.device.check();
  }
}

TEST(ChaosOrder, ATaskDoesNotKnowWhatItsLaneDoesLater) {
  Scene scene;
  std::promise<void> both_enqueued;
  scene.lane->run({"early", {}, {}, [&] {
                     both_enqueued.get_future().wait();
                     scene.d2h->copy(scene.on_device, scene.on_host);
                   }});
  scene.lane->run({"late", {}, {scene.on_host}, [] {}});
  both_enqueued.set_value();
  const std::string message = message_of<OrderError>([&] { scene.lane->record().wait(); });
  EXPECT_TRUE(contains(message, "task \"late\"")) << message;
}

TEST(ChaosOrder, APromiseOrdersTheHostButNotTheDevice) {
  for (const auto mode : kModes) {
    Scene scene(mode);
    const auto promise = scene.device.promise("uploaded");
    scene.lane->run({"adam", {}, {scene.on_host}, [&] {
                       scene.d2h->copy(scene.on_device, scene.on_host);
                       promise->fulfil(scene.d2h->record());
                     }});
    const Fence uploaded = promise->recorded();
    scene.lane->run({"adam again", {scene.on_host}, {}, [] {}});
    EXPECT_THROW(scene.device.enqueue(*scene.compute, claim("use", {scene.on_device}, {})), OrderError);
    scene.compute->wait(uploaded);
    scene.device.enqueue(*scene.compute, claim("use", {scene.on_device}, {}));
    scene.compute->record().wait();
    EXPECT_THROW(promise->fulfil(uploaded), InternalError);
  }
}

TEST(ChaosOrder, WhoReadsAPromiseKnowsWhatItsFulfillerKnew) {
  Scene scene;
  const auto promise = scene.device.promise("written");
  scene.lane->run({"write", {}, {scene.on_host}, [&] { promise->fulfil({}); }});
  EXPECT_THROW(scene.d2h->copy(scene.on_device, scene.on_host), OrderError);
  (void)promise->recorded();
  scene.d2h->copy(scene.on_device, scene.on_host);
}

TEST(ChaosOrder, ReadingAScalarIsAnAccessOfTheThread) {
  for (const auto mode : kModes) {
    Scene scene(mode);
    const Buffer number = scene.device.allocate(8, "loss");
    const Tensor device_number = number.tensor(DType::f64, {1});
    const Scalar scalar{scene.landed.tensor()};
    scene.compute->fill_zero(device_number);
    scene.landed.values()[0] = 5;
    scene.compute->copy(scalar.landed, device_number);
    const std::string message = message_of<OrderError>([&] { (void)scene.device.read(scalar); });
    EXPECT_TRUE(contains(message, "read of a scalar by a host thread")) << message;
    scene.compute->record().wait();
    EXPECT_EQ(scene.device.read(scalar), 0.0);
    scene.d2h->copy(scalar.landed, device_number);  // this thread has read it before it enqueues
    const Fence again = scene.d2h->record();
    scene.lane->wait(again);
    double seen = -1;
    scene.lane->run({"look", {}, {}, [&] { seen = scene.device.read(scalar); }});
    scene.lane->record().wait();
    EXPECT_EQ(seen, 0.0);
    scene.d2h->copy(scalar.landed, device_number);  // this thread waited for the lane's read
  }
}

TEST(ChaosOrder, OverwritingAScalarWaitsForItsReaders) {
  Scene scene;
  const Scalar scalar{scene.landed.tensor()};
  std::promise<void> has_read;
  scene.lane->run({"look", {}, {}, [&] {
                     (void)scene.device.read(scalar);
                     has_read.set_value();
                   }});
  const Fence looked = scene.lane->record();
  has_read.get_future().wait();
  const std::string message = message_of<OrderError>([&] { scene.d2h->fill_zero(scalar.landed); });
  EXPECT_TRUE(contains(message, "read by read of a scalar by task \"look\"")) << message;
  scene.d2h->wait(looked);
  scene.d2h->fill_zero(scalar.landed);
}

TEST(ChaosOrder, MemoryThatIsFreedOrUnpinnedInUsePoisonsTheDevice) {
  for (const bool waited : {true, false}) {
    Scene scene;
    scene.d2h->copy(scene.on_host, scene.on_device);
    if (waited) scene.d2h->record().wait();
    scene.buffer = {};
    if (waited) {
      scene.device.check();
    } else {
      const std::string message = message_of<OrderError>([&] { scene.device.check(); });
      EXPECT_TRUE(contains(message, "the end of a buffer of \"gradients\" by a host thread writes"))
          << message;
    }
  }
  Scene scene;
  {
    Pinned<float> brief(scene.device, 16);
    scene.d2h->copy(brief.tensor(), scene.on_device);
    scene.d2h->record().wait();
  }
  scene.device.check();
  std::vector<float> values(16);
  {
    const Pin pin = scene.device.pin(std::as_writable_bytes(std::span(values)));
    scene.d2h->copy({values.data(), DType::f32, {16}}, scene.on_device);
  }
  EXPECT_THROW(scene.device.check(), OrderError);
  scene.d2h.reset();  // before the values go
}

TEST(ChaosOrder, AClosedStreamIsWaitedFor) {
  Scene scene;
  scene.device.enqueue(*scene.compute, claim("write", {}, {scene.on_device}));
  scene.compute.reset();
  scene.d2h->copy(scene.on_host, scene.on_device);
}

TEST(ChaosOrder, FencesBelongToTheirDeviceAndTasksDoNotWait) {
  for (const auto mode : kModes) {
    Scene scene(mode);
    Scene other;
    const std::string message = message_of<InternalError>([&] { scene.d2h->wait(other.d2h->record()); });
    EXPECT_TRUE(contains(message, "another device")) << message;
    EXPECT_THROW(scene.device.enqueue(*other.compute, claim("k", {}, {})), InternalError);
    scene.d2h->wait({});
    Fence().wait();
    const Fence fence = scene.compute->record();
    const std::string sleepy = message_of<InternalError>([&] {
      scene.lane->run({"sleepy", {}, {}, [&] { fence.wait(); }});
      scene.lane->record().wait();
    });
    EXPECT_TRUE(contains(sleepy, "a task must not")) << sleepy;
  }
}

/// Writes, sends and updates with three waits, of which the second says again what the first said.
void program_with_waits(Scene& scene) {
  scene.device.enqueue(*scene.compute, claim("write", {}, {scene.on_device}));
  const Fence written = scene.compute->record();
  scene.d2h->wait(written);
  scene.d2h->wait(written);
  scene.d2h->copy(scene.on_host, scene.on_device);
  scene.lane->wait(scene.d2h->record());
  scene.lane->run({"adam", {scene.on_host}, {}, [] {}});
}

TEST(ChaosOrder, EveryDroppedWaitIsCaughtUnlessItIsRedundant) {
  for (const auto mode : kModes) {
    Scene whole(mode);
    whole.device.trace_waits();
    program_with_waits(whole);
    const std::vector<WaitRecord> waits = whole.device.waits();
    ASSERT_EQ(waits.size(), 3u);
    EXPECT_FALSE(waits[0].redundant);
    EXPECT_TRUE(waits[1].redundant);
    EXPECT_FALSE(waits[2].redundant);
    EXPECT_TRUE(contains(waits[0].waiter, "d2h") && contains(waits[0].fence, "compute"));
    for (size_t i = 0; i < 4; ++i) {
      Scene mutant(mode);
      mutant.device.drop_wait(i);
      // The first takes the second along, which would stand in for it.
      if (i == 0 || i == 2)
        EXPECT_THROW(program_with_waits(mutant), OrderError) << i;
      else
        EXPECT_NO_THROW(program_with_waits(mutant)) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::gpu
