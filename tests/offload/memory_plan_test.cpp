// The plan's bytes are those that a run takes, scope by scope, from its first step on; and those that the
// recording of a step shows, which takes none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "offload/memory_plan.h"
#include "offload/step_recording.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::Where;

/// Scope -> the most bytes at once.
ScopeBytes peaks(const MemoryCounters& counters) {
  ScopeBytes bytes;
  for (const auto& [scope, held] : counters.scopes())
    if (!scope.empty()) bytes[scope] = held.peak;
  return bytes;
}

/// The plan's host memory with the staging that a run takes while it starts or saves.
ScopeBytes host_peaks(const MemoryPlan& plan) {
  ScopeBytes bytes = plan.host;
  bytes["staging"] = plan.staging;
  return bytes;
}

size_t sum(const ScopeBytes& scopes) {
  size_t total = 0;
  for (const auto& [scope, bytes] : scopes) total += bytes;
  return total;
}

/// Formats and frozen parameters by turns, which all dtypes can have or only bf16.
void vary_states(EngineOptions& options, size_t i) {
  constexpr MasterFormat kMasters[] = {MasterFormat::fp32, MasterFormat::split, MasterFormat::ulp8};
  constexpr MomentFormat kMoments[] = {MomentFormat::int8, MomentFormat::fp32, MomentFormat::bf16};
  if (options.dtype == DType::bf16) options.masters = kMasters[i % 3];
  options.moments = kMoments[i / 2 % 3];
  if (i % 4 == 1) options.freeze = {"model.embed_tokens.weight", "*layers.0.*"};
  if (i % 4 == 2) options.freeze = {"*mlp*", "lm_head.weight"};
}

std::vector<EngineOptions> setups() {
  std::vector<EngineOptions> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Where where : {Where::host, Where::device, Where::mixed})
      for (const bool tied : {false, true}) {
        EngineOptions options;
        const size_t i = all.size() / 2;  // each of them resident and streamed
        options.arch = testing::tiny_arch(tied);
        options.dtype = dtype;
        options.where = where;
        options.order = i % 2 == 0 ? Order::layer_major : Order::micro_batch_major;
        options.keep = std::array{Keep::input, Keep::input_offloaded, Keep::all}[i / 2 % 3];
        options.micro_batches = 1 + static_cast<int64_t>(i % 3);
        options.micro_batch = 2;
        options.length = 13;
        options.policy.schedule = i % 5 < 3    ? Schedule::delayed
                                  : i % 5 == 3 ? Schedule::exact
                                               : Schedule::synchronous;
        options.on_nonfinite = dtype == DType::f32 ? OnNonfinite::stop : OnNonfinite::skip;
        options.policy.warmup_steps = 2;
        options.prediction = 1;
        vary_states(options, i);
        all.push_back(options);
        options.window = i % 2 == 0 ? 2 : 3;
        options.arch.layers = 5;
        all.push_back(options);
      }
  return all;
}

TEST(Memory, EveryScopeIsThePlansFromTheFirstStepOn) {
  for (const EngineOptions& options : setups()) {
    EngineRig rig(options);
    const MemoryPlan plan = plan_memory(rig.setup(), rig.table());
    rig.run(1);
    EXPECT_EQ(peaks(rig.device().counters()), plan.device);
    EXPECT_EQ(peaks(rig.host().counters()), host_peaks(plan));
    EXPECT_EQ(rig.device().counters().total().peak, plan.device_bytes());
    EXPECT_EQ(rig.host().counters().total().peak, plan.host_bytes() + plan.staging);
    EXPECT_EQ(rig.host().counters().total().now, plan.host_bytes());
    const Window window{options.micro_batch, options.length, rig.setup().group()};
    const size_t model = model_bytes(options.arch, options.dtype, window, options.keep).total();
    EXPECT_EQ(rig.trainer().arena_peak(), model);

    rig.run(5);
    const testing::FormulaTokens tokens(options, 99);
    const auto sequences = static_cast<size_t>(options.micro_batch * options.length);
    rig.trainer().begin_evaluation();
    (void)rig.trainer().evaluate(
        {std::span(tokens.tokens).first(sequences), std::span(tokens.targets).first(sequences)});
    rig.run(2);
    EXPECT_EQ(peaks(rig.device().counters()), plan.device);
    EXPECT_EQ(peaks(rig.host().counters()), host_peaks(plan));
    EXPECT_EQ(rig.device().counters().total().peak, plan.device_bytes());
    EXPECT_EQ(rig.trainer().arena_peak(),
              std::max(model, model_eval_bytes(options.arch, options.dtype, window).total()));
  }
}

TEST(Memory, TheRecordingOfAStepTakesWhatThePlanSays) {
  for (const EngineOptions& options : setups()) {
    const ParamTable table(options.arch, options.no_decay, options.freeze);
    const TrainSetup setup = setup_of(options, table);
    const MemoryPlan plan = plan_memory(setup, table);
    const StepRecording recorded = record_step(setup, table);
    EXPECT_EQ(recorded.device, plan.device);
    EXPECT_EQ(recorded.host, host_peaks(plan));
    EXPECT_EQ(sum(recorded.pinned), plan.most_pinned_bytes());
  }
}

/// The mutants: a bucket and a slot more than the plan knows of.
TEST(Memory, TheRecordingNoticesWhatAPlanForgets) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.arch.layers = 3;
  const ParamTable table(options.arch);
  const TrainSetup planned = setup_of(options, table);
  const MemoryPlan plan = plan_memory(planned, table);
  TrainSetup run = planned;
  run.layer_buckets = 3;
  EXPECT_NE(record_step(run, table).device, plan.device);
  EXPECT_EQ(record_step(run, table).host, host_peaks(plan));
  run = planned;
  run.policy.schedule = Schedule::delayed;
  EXPECT_EQ(record_step(run, table).device, plan.device);
  EXPECT_NE(record_step(run, table).host, host_peaks(plan));
}

/// By arithmetic, without model_bytes() or the table. Untied tiny model: embedding and head matrix 256 x 64;
/// a layer 64x64 (q, o), 2 x 32x64 (k, v), 3 x 128x64 and two norms of 64; the final norm.
TEST(Memory, AHandWorkedPlan) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.micro_batch = 2;
  options.length = 16;
  options.micro_batches = 3;
  options.policy.schedule = Schedule::delayed;
  const ParamTable table(options.arch);
  const size_t vocab = 256 * 64, layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64,
               all = 2 * vocab + 2 * layer + 64;
  const MemoryPlan plan = plan_memory(setup_of(options, table), table);
  const size_t batches = 3 /*sets*/ * 2 /*tokens, targets*/ * 3 * 2 * 16 * 4,
               scalars = 3 * (2 * 4 /*blocks*/ + 3) * 8, tables = 2 * 16 * 8 * 4;
  EXPECT_EQ(plan.device.at("weights"), all * 2);
  // fp32 sums of two layers and of one of the vocabulary's blocks, of which the head's has the final norm,
  // too; two 16-bit stagings, each for the largest block.
  EXPECT_EQ(plan.device.at("gradients"), (2 * layer + vocab + 64) * 4 + 2 * layer * 2);
  EXPECT_FALSE(plan.device.contains("optimizer"));
  EXPECT_EQ(plan.host.at("master"), all * 4);
  EXPECT_EQ(plan.host.at("exp_avg_sq"), all * 4);
  EXPECT_EQ(plan.host.at("slots"), all * 2 * 2);
  EXPECT_EQ(plan.pinned_bytes(), all * 2 * 2 + batches + scalars + tables);
  EXPECT_EQ(plan.host_bytes(), all * 16 + batches + scalars + tables);  // 16 per parameter: delayed, fp32
}

/// Streamed: a window of layers and one vocabulary matrix instead of all of them; what is frozen waits on the
/// host.
TEST(Memory, AHandWorkedWindow) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.arch.layers = 7;
  options.window = 3;
  options.freeze = {"*layers.1.mlp*", "lm_head.weight"};
  const ParamTable table(options.arch, {}, options.freeze);
  const size_t vocab = 256 * 64, mlp = 3 * 128 * 64, layer = 2 * 64 * 64 + 2 * 32 * 64 + mlp + 2 * 64;
  const MemoryPlan plan = plan_memory(setup_of(options, table), table);
  EXPECT_EQ(plan.device.at("weights"), (3 * layer + vocab + 64) * 2);
  EXPECT_EQ(plan.host.at("weights"), (mlp + vocab) * 2);
  EXPECT_EQ(plan.host.at("slots"), (vocab + 7 * layer - mlp + 64) * 2);
  options.where = Where::mixed;  // embedding, layers 1, 3, 5 and the head stream; the other four layers stay
  const MemoryPlan mixed = plan_memory(setup_of(options, table), table);
  EXPECT_EQ(mixed.device.at("weights"), (4 * layer + 3 * layer + vocab + 64) * 2);
  EXPECT_EQ(mixed.host.at("weights"), (mlp + vocab) * 2);
}

/// A policy's plan of the untied tiny model with so many layers, and the bytes of one input of a layer.
MemoryPlan plan_with(Keep keep, int64_t layers, int64_t micro_batches, Order order = Order::layer_major,
                     std::vector<std::string> freeze = {}) {
  EngineOptions options;
  options.arch.layers = layers;
  options.dtype = DType::bf16;
  options.micro_batch = 2;
  options.length = 13;
  options.micro_batches = micro_batches;
  options.order = order;
  options.keep = keep;
  options.freeze = std::move(freeze);
  const ParamTable table(options.arch, {}, options.freeze);
  return plan_memory(setup_of(options, table), table);
}
constexpr size_t kInput = 2 * 13 * 64 * 2;               // B, T, H, bf16
constexpr size_t kInArena = (kInput + 255) / 256 * 256;  // cuts are of 256 bytes

TEST(Memory, OffloadedInputsTakeAWindowOfTheDeviceAndTheRestOfPinnedMemory) {
  for (const int64_t m : {1, 2, 5}) {
    const size_t few = plan_with(Keep::input_offloaded, 3, m).device.at("activations");
    for (const int64_t layers : {1, 2, 4, 40}) {
      const MemoryPlan on_device = plan_with(Keep::input, layers, m),
                       away = plan_with(Keep::input_offloaded, layers, m);
      const auto n = static_cast<size_t>(layers), k = static_cast<size_t>(m);
      EXPECT_EQ(away.device.at("activations"), few);
      // All inputs (of the head, too) and one gradient; or an input of each micro-batch and two more.
      EXPECT_EQ(on_device.device.at("activations") - few, (k * (n + 1) + 1 - (k + 2)) * kInArena);
      const size_t sent = (n * k - 1) * kInput;  // all but the one with which backward begins
      EXPECT_EQ(away.host.contains("activations") ? away.host.at("activations") : 0, sent);
      EXPECT_EQ(away.pinned_bytes() - on_device.pinned_bytes(), sent);
      EXPECT_EQ(away.host_bytes() - on_device.host_bytes(), sent);
    }
  }
}

TEST(Memory, OneMicroBatchAtATimeOffloadsTheInputsOfOne) {
  const MemoryPlan plan = plan_with(Keep::input_offloaded, 4, 5, Order::micro_batch_major);
  EXPECT_EQ(plan.host.at("activations"), 3 * kInput);
  EXPECT_EQ(plan.device.at("activations"), plan_with(Keep::input_offloaded, 4, 1).device.at("activations"));
}

TEST(Memory, InputsThatBackwardDoesNotReadAreNotOffloaded) {
  const auto host = [](std::vector<std::string> freeze) {
    const MemoryPlan plan = plan_with(Keep::input_offloaded, 4, 2, Order::layer_major, std::move(freeze));
    return plan.host.contains("activations") ? plan.host.at("activations") : 0;
  };
  EXPECT_EQ(host({"model.embed_tokens.weight"}), 7 * kInput);
  EXPECT_EQ(host({"model.embed_tokens.weight", "*layers.0.*"}), 5 * kInput);
  EXPECT_EQ(host({"model.embed_tokens.weight", "*layers.0.*", "*layers.1.*", "*layers.2.*"}), kInput);
  EXPECT_EQ(host({"model.embed_tokens.weight", "*layers.*"}), 0u);
}

/// What synchronous needs less: the second slot.
TEST(Memory, TheDelayCostsOneSlot) {
  EngineOptions options;
  options.dtype = DType::bf16;
  const ParamTable table(options.arch);
  const MemoryPlan synchronous = plan_memory(setup_of(options, table), table);
  options.policy.schedule = Schedule::delayed;
  const MemoryPlan delayed = plan_memory(setup_of(options, table), table);
  EXPECT_EQ(delayed.host_bytes() - synchronous.host_bytes(), static_cast<size_t>(table.padded_count()) * 2);
  EXPECT_EQ(delayed.device, synchronous.device);
}

}  // namespace
}  // namespace tandem
