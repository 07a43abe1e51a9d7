// The first exception, wherever it happens, is what every waiter sees; nothing hangs.
#include <future>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

struct Planted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Two streams and a lane that wait for each other in a ring, with a failure planted at one stage.
struct Ring : Rig {
  using Rig::Rig;
  Buffer buffer = device.allocate(64, "weights");
  Pinned<float> host{device, 16};
  Pinned<double> landed{device, 1};
  Tensor on_device = buffer.tensor(DType::f32, {16});
  std::shared_ptr<FencePromise> promise = device.promise("uploaded");
  int rounds = 0;
  std::unique_ptr<Stream> compute = device.stream("compute", Purpose::compute, 0);
  std::unique_ptr<Stream> d2h = device.stream("d2h", Purpose::d2h, 0);
  std::unique_ptr<HostLane> lane = device.lane("cpu", Purpose::adam);

  enum class Stage { kernel, task, task_enqueues, host };

  void round(std::optional<Stage> failing) {
    const auto plant = [failing](Stage stage) {
      if (failing == stage) throw Planted("planted");
    };
    device.enqueue(*compute, {"kernel", {}, {on_device}, [plant](KernelContext&) { plant(Stage::kernel); }});
    d2h->wait(compute->record());
    d2h->copy(host.tensor(), on_device);
    lane->wait(d2h->record());
    lane->run({"adam", {host.tensor()}, {host.tensor()}, [this, plant, failing] {
                 ++rounds;
                 plant(Stage::task);
                 if (failing == Stage::task_enqueues) d2h->copy(host.tensor(), Tensor());
               }});
    if (failing == Stage::host) device.fail(std::make_exception_ptr(Planted("planted")));
    compute->wait(lane->record());
  }

  /// What the user of the ring gets to see.
  std::string ending(std::optional<Stage> failing) {
    try {
      round({});
      round(failing);
      round({});
      round({});
      compute->record().wait();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no failure";
  }
};

class ChaosFailure : public testing::TestWithParam<std::optional<uint64_t>> {};

TEST_P(ChaosFailure, AtEveryStageIsWhatEveryCallThrowsFromThenOn) {
  using Stage = Ring::Stage;
  for (const Stage stage : {Stage::kernel, Stage::task, Stage::task_enqueues, Stage::host}) {
    Ring ring(GetParam());
    const Fence early = ring.compute->record();
    early.wait();
    const std::string expected = stage == Stage::task_enqueues ? "copy" : "planted";
    EXPECT_TRUE(contains(ring.ending(stage), expected));
    EXPECT_LE(ring.rounds, 2) << "queued work was not dropped";
    const auto throws = [&](const auto& act) {
      if (stage == Stage::task_enqueues)
        EXPECT_THROW(act(), InternalError);
      else
        EXPECT_THROW(act(), Planted);
    };
    throws([&] { ring.device.check(); });
    throws([&] { ring.device.enqueue(*ring.compute, claim("k", {}, {})); });
    throws([&] { ring.d2h->copy(ring.host.tensor(), ring.on_device); });
    throws([&] { ring.d2h->fill_zero(ring.on_device); });
    throws([&] { ring.lane->run({"t", {}, {}, [] {}}); });
    throws([&] { (void)ring.compute->record(); });
    throws([&] { ring.compute->wait(early); });
    throws([&] { ring.compute->range("later"); });
    throws([&] { ring.device.scratch(*ring.compute, ring.on_device); });
    throws([&] { early.wait(); });
    throws([&] { (void)ring.promise->recorded(); });
    throws([&] { (void)ring.device.read({ring.landed.tensor()}); });
    throws([&] { (void)ring.device.stream("new", Purpose::other, 0); });
    ring.device.fail(std::make_exception_ptr(std::logic_error("a later one")));
    throws([&] { ring.device.check(); });
  }
}

TEST_P(ChaosFailure, WithoutOneTheRingTurns) {
  Ring ring(GetParam());
  EXPECT_EQ(ring.ending({}), "no failure");
  EXPECT_EQ(ring.rounds, 4);
}

INSTANTIATE_TEST_SUITE_P(Modes, ChaosFailure,
                         testing::Values(std::optional<uint64_t>(), std::optional<uint64_t>(0),
                                         std::optional<uint64_t>(1), std::optional<uint64_t>(2)));

TEST(ChaosFailureThreads, BlockedThreadsEndWithIt) {
  Ring ring;
  std::promise<void> gate;
  ring.lane->run({"held", {}, {}, [&] {
                    gate.get_future().wait();
                    throw Planted("planted");
                  }});
  const Fence behind = ring.lane->record();
  ring.compute->wait(behind);
  const Fence far_behind = ring.compute->record();
  auto on_fence = std::async(std::launch::async, [&] { far_behind.wait(); });
  auto on_promise = std::async(std::launch::async, [&] { (void)ring.promise->recorded(); });
  gate.set_value();
  EXPECT_THROW(on_fence.get(), Planted);
  EXPECT_THROW(on_promise.get(), Planted);
  EXPECT_FALSE(far_behind.passed());
}

TEST(ChaosFailureThreads, WhatDroppedWorkHeldGoesWithoutADeadlock) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), std::optional<uint64_t>(3)}) {
    Ring ring(mode);
    std::promise<void> gate;
    try {
      ring.lane->run({"held", {}, {}, [&] {
                        if (!mode) gate.get_future().wait();
                        throw Planted("planted");
                      }});
      auto buffer = std::make_shared<Buffer>(ring.device.allocate(64, "held"));
      ring.lane->run({"holds a buffer", {}, {}, [buffer] {}});
      buffer.reset();
      gate.set_value();
      ring.lane->record().wait();
    } catch (const Planted&) {
    }
    EXPECT_THROW(ring.device.check(), Planted);
    ring.lane.reset();  // whose thread drops the work
    EXPECT_EQ(ring.device.counters().scopes()["held"].now, 0u);
  }
}

}  // namespace
}  // namespace tandem::gpu
