// Users of the ring, the slots and the arena that break a law of theirs, each beside one that keeps it: the
// law is what makes the difference between an error and none.
#include <gtest/gtest.h>

#include <optional>

#include "core/run/arena.h"
#include "cpu_adam/plain_pool.h"
#include "gpu/host/host_device.h"
#include "offload/param_store.h"
#include "offload/update_ring.h"
#include "tests/offload/test_memory.h"

namespace tandem::testing {
namespace {

constexpr int64_t kNumel = 64;

/// Where a forward finds the weights.
enum class Weights : uint8_t { resident, streamed };

/// One block of 64 fp32 weights with two slots on the host, nothing computed: kernels and tasks only claim
/// what they read and write.
class Bench {
 public:
  explicit Bench(std::optional<uint64_t> seed, int uses = 1, Weights where = Weights::resident)
      : workers_(make_plain_pool(1)),
        device(*workers_, {size_t{1} << 20, seed, true}, {}),
        device_memory_(device.allocate(2 * kNumel * sizeof(float), "weights and gradient")),
        host_memory_(memory_.allocate(2 * kNumel * sizeof(float), "slots")),
        pin_(device.pin({static_cast<std::byte*>(host_memory_.raw()), host_memory_.bytes()})),
        weights(device_memory_.tensor(DType::f32, {kNumel})),
        gradient(device_memory_.tensor(DType::f32, {kNumel}, kNumel * sizeof(float))),
        slots({{host_memory_.tensor(DType::f32, {kNumel}),
                host_memory_.tensor(DType::f32, {kNumel}, kNumel * sizeof(float))}},
              {1}),
        compute(device.stream("compute", Purpose::compute, 0)),
        d2h(device.stream("d2h", Purpose::d2h, 0)),
        upload(device.stream("upload", Purpose::h2d, 0)),
        lane(device.lane("optimizer", Purpose::adam)),
        policy(options(), StepPolicy::initial(options())),
        ring(policy, slots, device, *upload,
             {{where == Weights::resident ? weights : Tensor{}, weights.numel(), uses}}, 0, 0) {
    if (where == Weights::streamed) (void)slots.place(0, 0);
  }

  /// A kernel that reads the weights; its fence.
  Fence read() {
    device.enqueue(*compute, {"forward", {weights}, {}, [](gpu::KernelContext&) {}});
    return compute->record();
  }
  /// The step's gradient lands, Adam turns it into the next version; the fence of that.
  Fence update(int64_t step) {
    const Slots::Landing slot = slots.land(0, step);
    slot.wait_until_free(*d2h);
    d2h->copy(slot.memory, gradient);
    lane->wait(d2h->record());
    lane->run({"adam", {slot.memory}, {slot.memory}, [] {}});
    policy.decided({step, false, 0, 1});
    return lane->record();
  }
  void finish() {
    for (Stream* stream : {compute.get(), d2h.get(), upload.get(), static_cast<Stream*>(lane.get())})
      stream->record().wait();
  }

 private:
  static PolicyOptions options() { return {.schedule = Schedule::synchronous}; }
  std::unique_ptr<Workers> workers_;
  TestMemory memory_;

 public:
  gpu::HostDevice device;

 private:
  Buffer device_memory_, host_memory_;
  Pin pin_;

 public:
  Tensor weights, gradient;
  Slots slots;
  std::unique_ptr<Stream> compute, d2h, upload;
  std::unique_ptr<HostLane> lane;
  StepPolicy policy;
  UpdateRing ring;
};

/// In both modes: nothing is thrown by the user that keeps the law, E by the one that breaks it.
template <class E = gpu::OrderError>
void expect_difference(const std::function<void(std::optional<uint64_t> seed, bool broken)>& user) {
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), {1}, {2}, {3}}) {
    EXPECT_NO_THROW(user(seed, false));
    EXPECT_THROW(user(seed, true), E);
  }
}

TEST(ChaosMutants, ASlotThatIsReleasedBeforeItsUploadHasRead) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    for (int64_t step = 0; step < 3; ++step) {
      const Fence finished = bench.update(step);
      bench.upload->wait(finished);
      bench.upload->copy(bench.weights, bench.slots.weights(0, step + 1));
      const Fence read = bench.upload->record();
      bench.slots.release(0, step + 1, broken ? finished : read);
    }
    bench.finish();
  });
}

TEST(ChaosMutants, ALeaseThatEndsBeforeItsLastRead) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    bench.ring.enter(0);
    bench.compute->wait(bench.ring.arrival(0, 0));
    const Fence before = bench.compute->record();
    const Fence after = bench.read();
    bench.ring.released(0, broken ? before : after);
    bench.ring.publish(0, 1, bench.update(0));
    bench.finish();
  });
}

TEST(ChaosMutants, AnUploadThatDoesNotWaitForTheLastOfTwoLeases) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed, broken ? 1 : 2);
    bench.ring.enter(0);
    bench.compute->wait(bench.ring.arrival(0, 0));
    bench.ring.released(0, bench.read());
    bench.ring.publish(0, 1, bench.update(0));
    const Fence again = bench.read();  // the second lease
    bench.ring.released(0, again);
    bench.finish();
  });
}

/// What goes wrong as a lease ends can't leave a destructor: then the device has to know, or whoever waits
/// for the upload waits for ever.
TEST(ChaosMutants, AnUploadThatFailsInALeasesDestructor) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    ResidentWeights source(bench.ring);
    bench.ring.enter(0);
    {
      const Lease lease = source.acquire(0, 0, Pass::forward, *bench.compute);
      bench.read();
      const Fence finished = bench.update(0);
      bench.ring.publish(0, 1, broken ? Fence{} : finished);
    }
    bench.device.check();
    bench.finish();
  });
}

TEST(ChaosMutants, AForwardThatDoesNotWaitForItsVersion) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    bench.ring.enter(0);
    bench.compute->wait(bench.ring.arrival(0, 0));
    bench.ring.released(0, bench.read());
    bench.ring.publish(0, 1, bench.update(0));
    bench.ring.enter(1);
    const Fence arrived = bench.ring.arrival(0, 1);
    if (!broken) bench.compute->wait(arrived);
    bench.read();
    bench.finish();
  });
}

TEST(ChaosMutants, AnAdamThatDoesNotWaitForItsGradient) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    const Slots::Landing slot = bench.slots.land(0, 0);
    bench.d2h->copy(slot.memory, bench.gradient);
    const Fence landed = bench.d2h->record();
    if (!broken) bench.lane->wait(landed);
    bench.lane->run({"adam", {slot.memory}, {slot.memory}, [] {}});
    bench.finish();
  });
}

/// Streamed: the slot of version 0 takes the gradient of step 1, the one of step 0 has the other.
TEST(ChaosMutants, AStreamedVersionWhoseSlotIsFreeBeforeItHasBeenFetched) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed, 1, Weights::streamed);
    bench.ring.enter(0);
    const Fence there = bench.ring.arrival(0, 0);
    bench.upload->wait(there);
    bench.upload->copy(bench.weights, bench.slots.weights(0, 0));
    bench.ring.released(0, broken ? there : bench.upload->record());
    bench.ring.publish(0, 1, bench.update(0));
    bench.ring.enter(1);
    bench.ring.released(0, Fence{});
    bench.ring.publish(0, 2, bench.update(1));
    bench.finish();
  });
}

TEST(ChaosMutants, AFetchThatDoesNotWaitForItsVersion) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed, 1, Weights::streamed);
    bench.ring.enter(0);
    bench.ring.released(0, bench.ring.arrival(0, 0));
    bench.ring.publish(0, 1, bench.update(0));
    bench.ring.enter(1);
    const Fence there = bench.ring.arrival(0, 1);
    if (!broken) bench.upload->wait(there);
    bench.upload->copy(bench.weights, bench.slots.weights(0, 1));
    bench.finish();
  });
}

/// One slot, as without a delay: the next gradient may land there only when the last pass has fetched.
TEST(ChaosMutants, AGradientThatLandsBeforeTheLastLeaseOfAStreamedBlock) {
  expect_difference<InternalError>([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed, 2, Weights::streamed);
    (void)bench.slots.land(0, 7);  // the other slot is taken
    bench.ring.enter(0);
    for (int lease = 0; lease < (broken ? 1 : 2); ++lease) bench.ring.released(0, bench.ring.arrival(0, 0));
    (void)bench.slots.land(0, 0);
  });
}

TEST(ChaosMutants, AVersionThatTheStepDoesNotRead) {
  expect_difference<InternalError>([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    bench.ring.enter(0);
    (void)bench.ring.arrival(0, broken ? 1 : 0);
  });
}

TEST(ChaosMutants, ALeaseTooMany) {
  expect_difference<InternalError>([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    bench.ring.enter(0);
    for (int lease = 0; lease < (broken ? 2 : 1); ++lease) bench.ring.released(0, bench.read());
  });
}

TEST(ChaosMutants, AStepThatStartsWhileALeaseOfTheOneBeforeIsOut) {
  expect_difference<InternalError>([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    bench.ring.enter(0);
    if (!broken) bench.ring.released(0, bench.read());
    bench.ring.publish(0, 1, bench.update(0));
    bench.ring.enter(1);
  });
}

TEST(ChaosMutants, AVersionThatIsPublishedTwice) {
  expect_difference<InternalError>([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    bench.ring.enter(0);
    bench.ring.released(0, bench.read());
    const Fence finished = bench.update(0);
    bench.ring.publish(0, 1, finished);
    if (broken) bench.ring.publish(0, 1, finished);
  });
}

/// Whoever fetches the next version before all that it is made of has been enqueued waits for himself: by a
/// promise, since no fence could be there yet.
TEST(ChaosMutants, AFetchAheadOfTheUpdateThatMakesItsVersion) {
  for (const uint64_t seed : {1, 2, 3, 4, 5})
    for (const bool broken : {false, true}) {
      Bench bench(seed, 1, Weights::streamed);
      const auto fetch = [&](int64_t version) {
        bench.upload->wait(bench.ring.arrival(0, version));
        bench.upload->copy(bench.weights, bench.slots.weights(0, version));
        bench.ring.released(0, bench.upload->record());
      };
      const auto update = [&] {
        const Fence finished = bench.update(0);
        bench.lane->run({"publish", {}, {}, [&bench, finished] { bench.ring.publish(0, 1, finished); }});
      };
      const auto steps = [&] {
        bench.ring.enter(0);
        fetch(0);
        // Decided in both, but there nothing has been enqueued that would publish.
        broken ? bench.policy.decided({0, false, 0, 1}) : update();
        bench.ring.enter(1);
        fetch(1);
        bench.finish();
      };
      if (broken)
        EXPECT_THROW(steps(), gpu::DeadlockError);
      else
        EXPECT_NO_THROW(steps());
    }
}

TEST(ChaosMutants, ScratchThatGoesBackWhileAnotherStreamReadsIt) {
  expect_difference([](std::optional<uint64_t> seed, bool broken) {
    Bench bench(seed);
    Arena arena(bench.device, bench.device.allocate(1024, "activations"), *bench.compute);
    const Slots::Landing slot = bench.slots.land(0, 0);
    ArenaTensor scratch = arena.take(DType::f32, {kNumel});
    bench.device.enqueue(*bench.compute, {"write", {}, {scratch}, [](gpu::KernelContext&) {}});
    bench.d2h->wait(bench.compute->record());
    bench.d2h->copy(slot.memory, scratch);
    broken ? scratch.reset() : scratch.release_after(bench.d2h->record());
    scratch = arena.take(DType::f32, {kNumel});
    scratch.reset();
    bench.finish();
  });
}

}  // namespace
}  // namespace tandem::testing
