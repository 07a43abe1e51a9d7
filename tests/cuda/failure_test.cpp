// The first failure, CUDA's or a task's, is what every waiter sees; nothing hangs.
#include <future>

#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

struct Planted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Two streams and a lane that wait for each other in a ring, with a failure planted at one stage.
struct Ring : Rig {
  explicit Ring(uint64_t seed = 0) : Rig(seed) {}
  enum class Stage { enqueue, work, task, task_enqueues, host };
  Buffer buffer = device.allocate(64, "weights");
  Pinned<float> host{device, 16};
  Pinned<double> landed{device, 1};
  Tensor on_device = buffer.tensor(DType::f32, {16});
  std::shared_ptr<FencePromise> promise = device.promise("uploaded");
  std::unique_ptr<Stream> compute = device.stream("compute", Purpose::compute, 0);
  std::unique_ptr<Stream> d2h = device.stream("d2h", Purpose::d2h, 0);
  std::unique_ptr<HostLane> lane = device.lane("cpu", Purpose::adam);

  void round(std::optional<Stage> failing) {
    if (failing) cuda_fake::forgive_order();
    if (failing == Stage::enqueue) cuda_fake::fail_call("cudaMemsetAsync", cudaErrorInvalidValue);
    if (failing == Stage::work) cuda_fake::fail_work(cudaErrorIllegalAddress);
    compute->fill_zero(on_device);
    d2h->wait(compute->record());
    d2h->copy(host.tensor(), on_device);
    lane->wait(d2h->record());
    lane->run({"adam", {host.tensor()}, {host.tensor()}, [this, failing] {
                 if (failing == Stage::task) throw Planted("planted");
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

TEST(FakeCudaFailure, AtEveryStageIsWhatEveryCallThrowsFromThenOn) {
  using Stage = Ring::Stage;
  const std::pair<Stage, std::string> stages[] = {
      {Stage::enqueue,
       "cudaMemsetAsync: cudaErrorInvalidValue (in words)\n  at: fill_zero on stream "
       "\"compute\" (range \"forward\")"},
      {Stage::work, "cudaErrorIllegalAddress"},
      {Stage::task, "planted"},
      {Stage::task_enqueues, "copy on stream \"d2h\""},
      {Stage::host, "planted"}};
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (const auto& [stage, expected] : stages) {
      Ring ring(seed);
      ring.compute->range("forward");
      const Fence early = ring.compute->record();
      early.wait();
      const std::string first = ring.ending(stage);
      EXPECT_TRUE(contains(first, expected)) << first;
      const auto throws = [&](const auto& act) {
        try {
          act();
          ADD_FAILURE() << "nothing was thrown after " << first;
        } catch (const std::exception& error) {
          EXPECT_EQ(error.what(), first);
        }
      };
      throws([&] { ring.device.check(); });
      throws([&] { ring.d2h->copy(ring.host.tensor(), ring.on_device); });
      throws([&] { ring.d2h->fill_zero(ring.on_device); });
      throws([&] { ring.lane->run({"t", {}, {}, [] {}}); });
      throws([&] { (void)ring.compute->record(); });
      throws([&] { (void)ring.lane->record(); });
      throws([&] { ring.compute->wait(early); });
      throws([&] { ring.lane->wait(early); });
      throws([&] { ring.compute->range("later"); });
      throws([&] { ring.device.scratch(*ring.compute, ring.on_device); });
      throws([&] { early.wait(); });
      throws([&] { (void)ring.promise->recorded(); });
      throws([&] { (void)ring.device.read({ring.landed.tensor()}); });
      throws([&] { (void)ring.device.stream("new", Purpose::other, 0); });
      throws([&] { (void)ring.device.allocate(8, "new"); });
      throws([&] { (void)ring.device.handle(*ring.compute); });
      throws([&] { (void)ring.device.workspace(*ring.compute, 8); });
      throws([&] { ring.device.launched(*ring.compute, cudaSuccess, "k"); });
      ring.device.fail(std::make_exception_ptr(std::logic_error("a later one")));
      throws([&] { ring.device.check(); });
    }
}

TEST(FakeCudaFailure, WithoutOneTheRingTurns) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Ring ring(seed);
    EXPECT_EQ(ring.ending({}), "no failure");
  }
}

TEST(FakeCudaFailure, ALaunchThatWasRefusedPoisons) {
  Ring ring;
  ring.device.launched(*ring.compute, cudaSuccess, "kernel \"add\"");
  const std::string message = message_of<Error>(
      [&] { ring.device.launched(*ring.compute, cudaErrorInvalidValue, "kernel \"add\""); });
  EXPECT_TRUE(contains(message, "at: kernel \"add\" on stream \"compute\"")) << message;
  EXPECT_THROW(ring.device.check(), Error);
}

TEST(FakeCudaFailure, BlockedThreadsEndWithItAndStreamsAreReleased) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Ring ring(seed);
    std::promise<void> gate;
    ring.lane->run({"held", {}, {}, [&] {
                      gate.get_future().wait();
                      throw Planted("planted");
                    }});
    ring.compute->wait(ring.lane->record());
    ring.lane->run({"never", {}, {}, [] {}});
    ring.d2h->wait(ring.lane->record());
    ring.d2h->wait(ring.compute->record());
    const Fence behind = ring.d2h->record();
    auto on_fence = std::async(std::launch::async, [&] { behind.wait(); });
    auto on_promise = std::async(std::launch::async, [&] { (void)ring.promise->recorded(); });
    gate.set_value();
    EXPECT_THROW(on_fence.get(), Planted);
    EXPECT_THROW(on_promise.get(), Planted);
  }  // the streams end, though what they wait for never comes
}

TEST(FakeCudaFailure, WhatDroppedWorkHeldGoesWithoutADeadlock) {
  Ring ring;
  std::promise<void> gate;
  ring.lane->run({"held", {}, {}, [&] {
                    gate.get_future().wait();
                    throw Planted("planted");
                  }});
  auto buffer = std::make_shared<Buffer>(ring.device.allocate(64, "held"));
  ring.lane->run({"holds a buffer", {}, {}, [buffer] {}});
  buffer.reset();
  gate.set_value();
  ring.lane.reset();
  EXPECT_THROW(ring.device.check(), Planted);
  EXPECT_EQ(ring.device.counters().scopes()["held"].now, 0u);
}

}  // namespace
}  // namespace tandem::gpu::cuda
