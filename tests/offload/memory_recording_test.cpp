// What the recording of a step says besides bytes by scope: the step's operations, against arithmetic; and
// that nothing is touched, whatever the model's size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "offload/step_recording.h"
#include "tests/core/address_sanitizer.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;

StepRecording record(const EngineOptions& options) {
  const ParamTable table(options.arch, options.no_decay, options.freeze);
  return record_step(setup_of(options, table), table);
}

/// What the step's operations of one stream with names that begin so come to.
struct Sum {
  int64_t count = 0;
  size_t written = 0;
  double flops = 0;
};
Sum sum_of(const StepRecording& recording, const std::string& stream, const std::string& name) {
  Sum sum;
  for (const gpu::RecordedOperation& operation : recording.step) {
    if (recording.streams.at(operation.stream).name != stream || !operation.name.starts_with(name)) continue;
    ++sum.count;
    sum.written += operation.written_bytes;
    sum.flops += operation.flops;
  }
  return sum;
}

EngineOptions small(Schedule schedule) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.micro_batch = 2;
  options.micro_batches = 3;
  options.policy.schedule = schedule;
  return options;
}

// Of the tiny model (untied): embedding and head matrix 256 x 64; a layer as in AHandWorkedPlan; final norm.
constexpr double kLayerProducts = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64, kHead = 256 * 64;
constexpr size_t kParameters = 2 * 256 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64) + 64;

TEST(MemoryRecording, AStepsTransfersAndUpdatesAreThoseOfItsBlocks) {
  for (const Schedule schedule : {Schedule::synchronous, Schedule::delayed}) {
    const StepRecording recorded = record(small(schedule));
    const int64_t blocks = 4;
    const size_t scalars = (2 * 4 + 3) * 8, tokens = 2 * 3 * 2 * 16 * 4;
    const Sum down = sum_of(recorded, "d2h_grad", "copy d2h"),
              up = sum_of(recorded, "h2d_upload", "copy h2d");
    EXPECT_EQ(down.count, blocks + 1);
    EXPECT_EQ(down.written, kParameters * 2 + scalars);
    EXPECT_EQ(up.count, blocks);
    EXPECT_EQ(up.written, kParameters * 2);
    EXPECT_EQ(sum_of(recorded, "h2d_batch", "copy h2d").written, tokens);
    const Sum adam = sum_of(recorded, "optimizer", "adam ");
    EXPECT_EQ(adam.count, blocks);
    EXPECT_EQ(adam.written, kParameters * (12 + 2));  // fp32 master and moments; the slot
    EXPECT_EQ(sum_of(recorded, "optimizer", "decide").count, 1);
    EXPECT_EQ(sum_of(recorded, "device_adam", "").count, 0);
  }
}

/// Each of them once down in forward and once up in backward, the one but all of the last layer's first.
TEST(MemoryRecording, OffloadedInputsTravelOnceEachWay) {
  for (const Order order : {Order::layer_major, Order::micro_batch_major}) {
    EngineOptions options = small(Schedule::exact);
    options.arch.layers = 5;
    options.keep = Keep::input_offloaded;
    options.order = order;
    const StepRecording recorded = record(options);
    const int64_t inputs = order == Order::layer_major ? 5 * 3 - 1 : 3 * (5 - 1);
    const size_t bytes = static_cast<size_t>(inputs) * 2 * 16 * 64 * 2;  // B, T, H, bf16
    const Sum down = sum_of(recorded, "d2h_act", ""), up = sum_of(recorded, "h2d_act", "");
    EXPECT_EQ(down.count, inputs);
    EXPECT_EQ(down.written, bytes);
    EXPECT_EQ(up.count, inputs);
    EXPECT_EQ(up.written, bytes);
    options.keep = Keep::input;
    EXPECT_EQ(record(options).streams.size() + 2, recorded.streams.size());
  }
}

TEST(MemoryRecording, AStepsProductsAreForwardRecomputedAndBackward) {
  const double rows = 3 * 2 * 16;
  for (const Keep keep : {Keep::input, Keep::input_offloaded, Keep::all}) {
    EngineOptions options = small(Schedule::synchronous);
    options.keep = keep;
    const StepRecording recorded = record(options);
    // Nothing of backward looks at the output of a layer's last product (down), so it isn't made again.
    const double again = keep == Keep::all ? 0 : kLayerProducts - 128 * 64;
    EXPECT_EQ(sum_of(recorded, "compute", "linear_").flops,
              2 * rows * (2 * (kLayerProducts * 3 + again) + kHead * 3));
    // Two layers of four heads of 16 over 16 positions: 136 pairs of row and key each; 2 products forward.
    EXPECT_EQ(sum_of(recorded, "compute", "attention_forward").flops,
              (keep == Keep::all ? 1 : 2) * 2 * 2 * 2.0 * 136 * 16 * 4 * 6);
    EXPECT_EQ(sum_of(recorded, "compute", "attention_backward").flops, 5 * 2 * 2.0 * 136 * 16 * 4 * 6);
  }
}

TEST(MemoryRecording, AWindowOfAttentionHasFewerPairs) {
  EngineOptions options = small(Schedule::synchronous);
  options.keep = Keep::all;
  options.arch.windows = {5, 5};
  double pairs = 0;
  for (int row = 0; row < 16; ++row) pairs += std::min(row + 1, 5);
  EXPECT_EQ(sum_of(record(options), "compute", "attention_forward").flops, 2 * 2 * 2 * pairs * 16 * 4 * 6);
}

TEST(MemoryRecording, ItsWaitsAreThoseOfTheSchedule) {
  const auto waits_of = [](const StepRecording& recorded, const std::string& stream) {
    std::map<std::string, int64_t> last;  // stream waited for -> the latest place
    for (const gpu::RecordedOperation& operation : recorded.step)
      for (const gpu::RecordedPlace& place : operation.waits)
        if (recorded.streams.at(operation.stream).name == stream) {
          const auto [at, is_new] =
              last.try_emplace(recorded.streams.at(place.stream).name, place.operations);
          at->second = std::max(at->second, place.operations);
        }
    return last;
  };
  for (const Schedule schedule : {Schedule::synchronous, Schedule::delayed}) {
    const StepRecording recorded = record(small(schedule));
    // Uploads that forward waits for end in the step before; a gradient's way down waits for its backward.
    EXPECT_EQ(waits_of(recorded, "compute").at("h2d_upload"), 0);
    EXPECT_GT(waits_of(recorded, "d2h_grad").at("compute"), 0);
    // Adam waits for this step's gradients; with a delay its uploads are of the step before.
    EXPECT_EQ(waits_of(recorded, "optimizer").at("d2h_grad"), 5);
    const int64_t updates = waits_of(recorded, "h2d_upload").at("optimizer");
    EXPECT_EQ(updates > 0, schedule == Schedule::synchronous) << updates;
  }
}

TEST(MemoryRecording, RunsOverTheSwitchUntilTwoStepsAreTheSame) {
  EngineOptions options = small(Schedule::delayed);
  options.policy.warmup_steps = 400;
  const StepRecording recorded = record(options);
  EXPECT_GE(recorded.steps, 4);  // two at lag 0, two at lag 1
  EXPECT_LE(recorded.steps, 8);
  const ParamTable table(options.arch);
  const StepRecording digested = record_step(setup_of(options, table), table, gpu::Operations::digested);
  EXPECT_EQ(digested.digest, recorded.digest);
  EXPECT_TRUE(digested.step.empty());
  EXPECT_EQ(digested.device, recorded.device);
  options.clip = 1;  // decides nothing about what is enqueued
  EXPECT_EQ(record(options).digest, recorded.digest);
  options.micro_batches = 4;
  EXPECT_NE(record(options).digest, recorded.digest);
}

size_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  size_t kib = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) kib = std::stoul(line.substr(6));
  return kib << 10;
}

/// Llama's shapes of 7 and 70 billion parameters, with 2 x 4 sequences of 4096 tokens.
EngineOptions llama(bool large, testing::Where where) {
  EngineOptions options;
  options.arch.vocab = 32000;
  options.arch.hidden = large ? 8192 : 4096;
  options.arch.intermediate = large ? 28672 : 11008;
  options.arch.layers = large ? 80 : 32;
  options.arch.heads = large ? 64 : 32;
  options.arch.kv_heads = large ? 8 : 32;
  options.arch.head_dim = 128;
  options.arch.max_positions = 4096;
  options.dtype = DType::bf16;
  options.micro_batch = 2;
  options.micro_batches = 4;
  options.length = 4096;
  options.where = where;
  options.policy.schedule = Schedule::delayed;
  return options;
}

TEST(MemoryRecording, SeventyBillionParametersTouchNothing) {
  for (const bool large : {false, true})
    for (const testing::Where where : {testing::Where::host, testing::Where::mixed}) {
      const EngineOptions options = llama(large, where);
      const ParamTable table(options.arch);
      EXPECT_NEAR(static_cast<double>(table.parameter_count()), large ? 68.98e9 : 6.738e9, 1e7);
      const TrainSetup setup = setup_of(options, table);
      const size_t before = resident_bytes();
      const StepRecording recorded = record_step(setup, table);
      if (!kAddressSanitizer) {
        EXPECT_LT(resident_bytes(), before + (size_t{64} << 20));
      }
      EXPECT_EQ(recorded.device, plan_memory(setup, table).device);
      EXPECT_GT(recorded.step.size(), 1000u);
    }
}

}  // namespace
}  // namespace tandem
