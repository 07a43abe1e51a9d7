// Recordings made by hand, on machines of round numbers: what they take, by arithmetic. Then the engine's own
// step where one resource is scarce.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "offload/replay.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using gpu::RecordedOperation;
using gpu::RecordedPlace;

constexpr size_t kGigabyte = 1'000'000'000;

/// 1 TFLOP/s; 100 GB/s on the device; 10 GB/s each way and 15 both ways; 10 GB/s in the host's memory.
HardwareProfile round_machine() {
  HardwareProfile machine;
  machine.matrix_16bit = machine.matrix_fp32 = 1;
  machine.device_gb_s = 100;
  machine.d2h_gb_s = machine.h2d_gb_s = 10;
  machine.both_gb_s = 15;
  machine.dram_gb_s = 10;
  return machine;
}

enum Stream : size_t { kCompute, kDown, kUp, kLane, kOtherLane };

class Hand {
 public:
  Hand() {
    recording_.streams = {{"compute", Purpose::compute, false, 0},
                          {"d2h_grad", Purpose::d2h, false, 0},
                          {"h2d_upload", Purpose::h2d, false, 0},
                          {"optimizer", Purpose::adam, true, 0},
                          {"optimizer of b", Purpose::adam, true, 0}};
  }
  /// Seconds of products.
  RecordedPlace kernel(double seconds, std::vector<RecordedPlace> waits = {}) {
    return add({.stream = kCompute, .name = "kernel", .flops = seconds * 1e12, .waits = std::move(waits)});
  }
  RecordedPlace down(double gigabytes, std::vector<RecordedPlace> waits = {}) {
    return add(copy(kDown, "copy d2h", gigabytes, std::move(waits)));
  }
  RecordedPlace up(double gigabytes, std::vector<RecordedPlace> waits = {}) {
    return add(copy(kUp, "copy h2d", gigabytes, std::move(waits)));
  }
  RecordedPlace adam(double gigabytes, std::vector<RecordedPlace> waits = {}, size_t lane = kLane) {
    const auto half = static_cast<size_t>(gigabytes * kGigabyte / 2);
    return add({.stream = lane,
                .name = "adam b",
                .read_bytes = half,
                .written_bytes = half,
                .waits = std::move(waits)});
  }
  RecordedPlace add(RecordedOperation op) {
    recording_.step.push_back(std::move(op));
    const size_t stream = recording_.step.back().stream;
    return {stream, ++counts_[stream]};
  }
  RecordedOperation& last() { return recording_.step.back(); }
  [[nodiscard]] Replay play(const HardwareProfile& machine = round_machine()) const {
    return replay(recording_, machine, DType::bf16);
  }

 private:
  static RecordedOperation copy(size_t stream, const char* name, double gigabytes,
                                std::vector<RecordedPlace> waits) {
    const auto bytes = static_cast<size_t>(gigabytes * kGigabyte);
    return {.stream = stream,
            .name = name,
            .read_bytes = bytes,
            .written_bytes = bytes,
            .waits = std::move(waits)};
  }
  StepRecording recording_;
  std::map<size_t, int64_t> counts_;
};

constexpr double kExact = 1e-6;  // of a millisecond count: sums of a few doubles

void expect_idle(const Replay& replay, double d2h, double adam, double h2d, double other) {
  EXPECT_NEAR(replay.d2h_ms, d2h, 1e-3);
  EXPECT_NEAR(replay.adam_ms, adam, 1e-3);
  EXPECT_NEAR(replay.h2d_ms, h2d, 1e-3);
  EXPECT_NEAR(replay.other_ms, other, 1e-3);
}

TEST(Replay, KernelsOfOneStreamFollowOneAnother) {
  Hand hand;
  hand.kernel(1);
  hand.kernel(0.5);
  const Replay replay = hand.play();
  EXPECT_NEAR(replay.step_ms, 1500, kExact);
  EXPECT_NEAR(replay.busy[static_cast<size_t>(Resource::matrix)], 1, 1e-9);
  EXPECT_EQ(replay.binding(), Resource::matrix);
  expect_idle(replay, 0, 0, 0, 0);
}

TEST(Replay, BytesOfTheDeviceCountWhereTheyTakeLonger) {
  Hand hand;
  hand.kernel(0.5);
  hand.last().read_bytes = 100 * kGigabyte;
  EXPECT_NEAR(hand.play().step_ms, 1000, kExact);
}

/// 10 GB each way over a link of 15 both ways.
TEST(Replay, CopiesBothWaysShareTheLink) {
  HardwareProfile machine = round_machine();
  machine.dram_gb_s = 1000;
  Hand hand;
  hand.down(10);
  hand.up(10);
  hand.kernel(1e-6);
  // Each at 7.5 GB/s.
  EXPECT_NEAR(hand.play(machine).busy[static_cast<size_t>(Resource::link)], 1, 1e-3);
  Hand chained;
  chained.kernel(1e-6, {chained.down(10), chained.up(10)});
  EXPECT_NEAR(chained.play(machine).step_ms, 10e3 / 7.5, 0.01);
}

/// 10 GB of the CPU's beside a copy of 5 GB: for half a second at half the rate, then at all of it.
TEST(Replay, CopiesGoAheadOfTheCpuInTheHostsMemory) {
  HardwareProfile machine = round_machine();
  machine.dram_gb_s = 20;
  Hand hand;
  const std::vector<RecordedPlace> last_kernel{{kCompute, 0}};
  hand.kernel(1e-6, {hand.up(5, last_kernel), hand.adam(10, last_kernel)});
  const Replay replay = hand.play(machine);
  EXPECT_NEAR(replay.step_ms, 750, 0.01);
  EXPECT_EQ(replay.binding(), Resource::dram);
}

/// kernel 1 s -> down 2 GB 0.2 s -> Adam 10 GB 1 s -> up 1 GB 0.1 s -> the next step's kernel.
TEST(Replay, IdleTimeIsByWhatWasWaitedForDownTheChain) {
  Hand hand;
  const RecordedPlace gradient = hand.kernel(1, {{kUp, 0}});
  hand.up(1, {hand.adam(10, {hand.down(2, {gradient})})});
  const Replay replay = hand.play();
  EXPECT_NEAR(replay.step_ms, 1000 + 200 + 1000 + 100, kExact);
  expect_idle(replay, 200, 1000, 100, 0);
  EXPECT_NEAR(replay.adam_bytes, 10e9, 1);
}

/// The same, one step late: all of it behind the kernel.
TEST(Replay, AStepLateNothingShows) {
  Hand hand;
  const RecordedPlace gradient = hand.kernel(2, {{kUp, -1}});
  hand.up(1, {hand.adam(10, {hand.down(2, {gradient})})});
  const Replay replay = hand.play();
  EXPECT_NEAR(replay.step_ms, 2000, kExact);
  expect_idle(replay, 0, 0, 0, 0);
}

TEST(Replay, LaunchesOfTheMainThreadCanBeWhatBinds) {
  HardwareProfile machine = round_machine();
  machine.launch_us = 1000;
  Hand hand;
  for (int i = 0; i < 100; ++i) hand.kernel(1e-4);
  const Replay replay = hand.play(machine);
  EXPECT_NEAR(replay.step_ms, 100, 0.01);
  expect_idle(replay, 0, 0, 0, 90);
  EXPECT_EQ(replay.binding(), Resource::launches);
}

TEST(Replay, NoKernelIsShorterThanTheShortest) {
  HardwareProfile machine = round_machine();
  machine.shortest_kernel_us = 5000;
  Hand hand;
  for (int i = 0; i < 10; ++i) hand.kernel(1e-4);
  EXPECT_NEAR(hand.play(machine).step_ms, 50, 0.01);
}

/// The main thread looks at the update of the step before itself.
TEST(Replay, WhatTheMainThreadWaitsForHoldsUpAllThatItEnqueues) {
  Hand hand;
  hand.kernel(1);
  hand.last().held = {{kLane, 0}};
  hand.adam(10, {{kCompute, 1}});
  const Replay replay = hand.play();
  EXPECT_NEAR(replay.step_ms, 2000, kExact);
  expect_idle(replay, 0, 1000, 0, 0);
}

/// A task enqueues the upload: it can't begin before.
TEST(Replay, WhatATaskEnqueuesComesAfterIt) {
  Hand hand;
  const RecordedPlace gradient = hand.kernel(1, {{kUp, 0}}), task = hand.adam(5, {gradient});
  hand.up(1);
  hand.last().task = task;
  const Replay replay = hand.play();
  EXPECT_NEAR(replay.step_ms, 1000 + 500 + 100, kExact);
  expect_idle(replay, 0, 500, 100, 0);
}

TEST(Replay, LanesTakeTurns) {
  Hand hand;
  const std::vector<RecordedPlace> last_kernel{{kCompute, 0}};
  const RecordedPlace one = hand.adam(5, last_kernel), other = hand.adam(5, last_kernel, kOtherLane);
  hand.kernel(1e-6, {one, other});
  EXPECT_NEAR(hand.play().step_ms, 1000, 0.01);
  HardwareProfile fast = round_machine();
  fast.dram_gb_s = 1e9;  // then two tasks of 2 us are left, and the kernel of 1
  EXPECT_NEAR(hand.play(fast).step_ms, 5e-3, 1e-6);
}

TEST(Replay, AStepThatWaitsForItselfIsNoStep) {
  Hand hand;
  hand.kernel(1, {{kUp, 1}});
  hand.up(1, {{kCompute, 1}});
  EXPECT_THROW((void)hand.play(), InternalError);
}

// ---- the engine's step

struct Engine {
  ParamTable table;
  TrainSetup setup;
  StepRecording recording;
  explicit Engine(const testing::EngineOptions& options)
      : table(options.arch), setup(setup_of(options, table)), recording(record_step(setup, table)) {}
  [[nodiscard]] double parameters() const { return static_cast<double>(table.trained_count()); }
};

testing::EngineOptions engine_options(Schedule schedule) {
  testing::EngineOptions options;
  options.arch = testing::tiny_arch(false);
  options.arch.layers = 12;
  options.dtype = DType::bf16;
  options.micro_batches = 2;
  options.clip = 1;
  options.policy.schedule = schedule;
  return options;
}

/// A machine on which nothing takes time.
HardwareProfile boundless_machine() {
  HardwareProfile machine;
  machine.matrix_16bit = machine.matrix_fp32 = machine.device_gb_s = 1e9;
  machine.d2h_gb_s = machine.h2d_gb_s = machine.both_gb_s = machine.dram_gb_s = 1e9;
  return machine;
}

constexpr double kFixed = 0.2;  // ms: the least that the lane's tasks take

/// 28 bytes per parameter of Adam's and 4 of the copies.
TEST(ReplayEngine, HostMemoryBindsADelayedStep) {
  const Engine engine(engine_options(Schedule::delayed));
  HardwareProfile machine = boundless_machine();
  machine.dram_gb_s = 0.1;
  const Replay replay = tandem::replay(engine.recording, machine, DType::bf16);
  EXPECT_NEAR(replay.step_ms, engine.parameters() * 32 / 0.1e9 * 1e3, replay.step_ms * 0.02 + kFixed);
  EXPECT_EQ(replay.binding(), Resource::dram);
}

/// Every kernel of the step and nothing else.
TEST(ReplayEngine, ProductsBindADelayedStep) {
  const Engine engine(engine_options(Schedule::delayed));
  HardwareProfile machine = boundless_machine();
  machine.matrix_16bit = 1e-4;
  double flops = 0;
  for (const RecordedOperation& op : engine.recording.step) flops += op.flops;
  const Replay replay = tandem::replay(engine.recording, machine, DType::bf16);
  EXPECT_NEAR(replay.step_ms, flops / 1e8 * 1e3, replay.step_ms * 1e-3);
  EXPECT_EQ(replay.binding(), Resource::matrix);
}

/// In `synchronous` everything adds up: kernels, the whole way down but what backward hides, Adam, the way
/// up.
TEST(ReplayEngine, ASynchronousStepIsASum) {
  const Engine engine(engine_options(Schedule::synchronous));
  HardwareProfile machine = boundless_machine();
  machine.h2d_gb_s = machine.dram_gb_s = 0.1;
  machine.matrix_16bit = 1e-4;
  double flops = 0;
  for (const RecordedOperation& op : engine.recording.step) flops += op.flops;
  const double kernels = flops / 1e8 * 1e3, adam = engine.parameters() * 28 / 0.1e9 * 1e3,
               up = engine.parameters() * 2 / 0.1e9 * 1e3;
  const Replay replay = tandem::replay(engine.recording, machine, DType::bf16);
  // An upload may run beside the next block's Adam, at the price of its bytes; what came down by then, too.
  EXPECT_GT(replay.step_ms, (kernels + adam) * 0.99);
  EXPECT_LT(replay.step_ms, (kernels + adam + 2 * up) * 1.02 + kFixed);
  EXPECT_NEAR(replay.step_ms - replay.idle_ms(), kernels, kernels * 0.02);
}

/// Kernels take about as long as Adam.
TEST(ReplayEngine, LessDelayedIsSlower) {
  HardwareProfile machine = boundless_machine();
  machine.dram_gb_s = 0.3;
  machine.d2h_gb_s = machine.h2d_gb_s = 0.2;
  machine.matrix_16bit = 3e-3;
  std::vector<double> steps;
  for (const Schedule schedule : {Schedule::delayed, Schedule::exact, Schedule::synchronous})
    steps.push_back(tandem::replay(Engine(engine_options(schedule)).recording, machine, DType::bf16).step_ms);
  EXPECT_LT(steps[0] * 1.05, steps[1]);
  EXPECT_LT(steps[1] * 1.02, steps[2]);
}

/// Weights cross the link twice a step, and they are all that does much.
TEST(ReplayEngine, TheLinkBindsStreamedWeights) {
  testing::EngineOptions options = engine_options(Schedule::delayed);
  options.window = 3;
  const Engine engine(options);
  HardwareProfile machine = boundless_machine();
  machine.h2d_gb_s = 0.01;
  double up = 0;
  for (const RecordedOperation& op : engine.recording.step)
    if (op.name == "copy h2d") up += static_cast<double>(op.written_bytes);
  const Replay replay = tandem::replay(engine.recording, machine, DType::bf16);
  EXPECT_NEAR(replay.step_ms, up / 0.01e9 * 1e3, replay.step_ms * 0.05);
  EXPECT_GT(up, engine.parameters() * 2 * 1.5);
  EXPECT_EQ(replay.binding(), Resource::h2d);
}

}  // namespace
}  // namespace tandem
