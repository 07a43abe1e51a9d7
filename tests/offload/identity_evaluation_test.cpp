// Evaluation with weights that stream: the loss of weights that are resident, bit for bit; the bytes that the
// plan says; taken by itself where the device has no room for all weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "cpu_adam/host_memory.h"
#include "gpu/backend.h"
#include "offload/evaluation.h"
#include "tests/core/expect_error.h"
#include "tests/core/temporary_folder.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/golden_weights.h"

namespace tandem {
namespace {

constexpr int64_t kLength = 16;

class FormulaWeights : public WeightSource {
 public:
  void read(const ParamSpec& spec, int64_t, std::span<float> out) override {
    golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
  }
};

Arch five_layers(Arch arch) {
  arch.layers = 5;
  return arch;
}
Arch untied() { return five_layers(testing::tiny_arch(false)); }

/// Five sequences of bytes.
DataSets five_sequences(const TemporaryFolder& folder) {
  std::string text;
  for (const int32_t token : golden::batch(0, 1, 5 * kLength)) text += static_cast<char>(token);
  return open_eval_files({folder.write("tokens.bin", text)}, TokenFormat::bytes, 256, kLength);
}

/// One evaluation of the five sequences, two at a time, with what the allocators have counted.
struct Evaluation {
  EvalResult result;
  ScopeBytes device, host;
};

struct Limits {
  size_t device = SIZE_MAX;
  HostLimits host = {};
  std::optional<uint64_t> chaos_seed = {};
};

ScopeBytes peaks(const MemoryCounters& counters) {
  ScopeBytes bytes;
  for (const auto& [scope, held] : counters.scopes())
    if (!scope.empty() && held.peak > 0) bytes[scope] = held.peak;
  return bytes;
}

Evaluation evaluate(const Arch& arch, const EvalOptions& options, const Limits& limits = {}) {
  const TemporaryFolder folder;
  const DataSets data = five_sequences(folder);
  const ParamTable table(arch);
  Machine machine;
  machine.device_kind = "host";
  machine.workers = make_workers(PoolKind::plain, 2);
  machine.host = make_host_memory(*machine.workers);
  machine.device_limit = limits.device;
  machine.limits = limits.host;
  const std::unique_ptr<Device> device = gpu::open(
      "host",
      {machine.workers.get(), std::min(limits.device, testing::kDeviceMemory), limits.chaos_seed, true});
  FormulaWeights weights;
  Evaluation out;
  out.result =
      evaluate_model(arch, table, weights, options, data.eval_set(), data.eval_range, machine, *device);
  out.device = peaks(device->counters());
  out.host = peaks(machine.host->counters());
  return out;
}

uint64_t bits(const Evaluation& evaluation) { return std::bit_cast<uint64_t>(evaluation.result.loss); }

struct Case {
  const char* name;
  Arch arch;
};

std::vector<Case> cases() {
  return {{"tied", five_layers(testing::tiny_arch(true))},
          {"untied", untied()},
          {"gpt2", five_layers(testing::gpt2_arch())}};
}

EvalOptions options_of(DType dtype, bool streamed, int window = 3) {
  return {.dtype = dtype, .batch = 2, .streamed = streamed, .window = window};
}

TEST(IdentityEvaluation, StreamedWeightsGiveTheLossOfResidentOnes) {
  for (const Case& c : cases())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Evaluation resident = evaluate(c.arch, options_of(dtype, false));
      EXPECT_FALSE(resident.result.streamed);
      EXPECT_EQ(resident.result.tokens, 5 * kLength);
      for (const int window : {2, 3, 9}) {
        const Evaluation streamed = evaluate(c.arch, options_of(dtype, true, window));
        EXPECT_TRUE(streamed.result.streamed);
        EXPECT_EQ(streamed.result.tokens, 5 * kLength);
        EXPECT_EQ(bits(streamed), bits(resident))
            << fmt::format("{} {} window {}", c.name, name_of(dtype), window);
      }
    }
}

TEST(ChaosEvaluation, SeedsGiveTheLossOfTheThreads) {
  for (const Case& c : cases()) {
    const Evaluation threads = evaluate(c.arch, options_of(DType::bf16, true, 2));
    for (uint64_t seed = 0; seed < 5; ++seed)
      EXPECT_EQ(bits(evaluate(c.arch, options_of(DType::bf16, true, 2), {.chaos_seed = seed})), bits(threads))
          << c.name << " seed " << seed;
  }
}

TEST(MemoryEvaluation, EveryScopeIsThePlans) {
  for (const Case& c : cases())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool streamed : {false, true}) {
        const EvalOptions options = options_of(dtype, streamed);
        const MemoryPlan plan = plan_evaluation(c.arch, ParamTable(c.arch), options, kLength);
        const Evaluation ran = evaluate(c.arch, options);
        ScopeBytes host = plan.host;
        host["staging"] = plan.staging;
        EXPECT_EQ(ran.device, plan.device) << c.name;
        EXPECT_EQ(ran.host, host) << c.name;
      }
}

/// Untied: embedding and head matrix 256 x 64; a layer 64x64 (q, o), 2 x 32x64 (k, v), 3 x 128x64 and two
/// norms of 64, the largest block; the final norm.
TEST(MemoryEvaluation, AHandWorkedWindow) {
  const size_t vocab = 256 * 64, layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64,
               all = 2 * vocab + 5 * layer + 64;
  const auto plan = [&](bool streamed) {
    return plan_evaluation(untied(), ParamTable(untied()), options_of(DType::bf16, streamed), kLength);
  };
  EXPECT_EQ(plan(false).device.at("weights"), all * 2);
  EXPECT_FALSE(plan(false).host.contains("weights"));
  EXPECT_EQ(plan(false).staging, layer * (4 + 2));
  EXPECT_EQ(plan(true).device.at("weights"), (3 * layer + vocab + 64) * 2);
  EXPECT_EQ(plan(true).host.at("weights"), all * 2);
  EXPECT_EQ(plan(true).staging, layer * 4);
  EXPECT_EQ(plan(false).device_bytes() - plan(true).device_bytes(), (vocab + 2 * layer) * 2);
}

size_t device_bytes(const EvalOptions& options, int64_t length = kLength) {
  return plan_evaluation(untied(), ParamTable(untied()), options, length).device_bytes();
}

TEST(MemoryEvaluation, WeightsStreamOnlyWhereTheDeviceHasNoRoomForThem) {
  const EvalOptions open = options_of(DType::bf16, false);
  const size_t all = device_bytes(open), window = device_bytes(options_of(DType::bf16, true));
  ASSERT_LT(window, all);
  const Evaluation resident = evaluate(untied(), open, {.device = all});
  EXPECT_FALSE(resident.result.streamed);
  for (const size_t limit : {all - 1, window}) {
    const Evaluation streamed = evaluate(untied(), open, {.device = limit});
    EXPECT_TRUE(streamed.result.streamed);
    EXPECT_EQ(bits(streamed), bits(resident));
  }
}

/// What each error offers is enough, by the plan of what it offers.
TEST(MemoryEvaluation, WhatDoesNotFitNamesWhatDoes) {
  const auto offers = [&](const EvalOptions& asked, const Limits& limits, const char* why, const char* knob) {
    expect_error(Status::does_not_fit, {"the evaluation does not fit: ", why, knob, "device.memory_limit"},
                 [&] { (void)evaluate(untied(), asked, limits); });
  };
  const EvalOptions open = options_of(DType::bf16, false), wide = options_of(DType::f32, false),
                    asked = options_of(DType::bf16, true, 4);
  const size_t window = device_bytes(options_of(DType::bf16, true));
  offers(wide, {.device = window}, "with weights that stream where ", "try: --dtype bfloat16");
  const size_t shorter = device_bytes(options_of(DType::bf16, true), kLength / 4);
  offers(open, {.device = shorter}, "with weights that stream where ", "try: --sequence-length 4");
  offers(open, {.device = 1024}, "where 1.00 KiB may be used", "try: a smaller model");
  offers(asked, {.device = device_bytes(options_of(DType::bf16, true, 2))}, "the device needs ",
         "try: --set zero_optimization.offload_param.buffer_count=2");
  // The host device's memory is the host's: all weights there, or all of them and a window.
  const MemoryPlan resident = plan_evaluation(untied(), ParamTable(untied()), open, kLength);
  HostLimits host;
  host.available_bytes = resident.host_bytes() + resident.staging + resident.device_bytes();
  offers(asked, {.host = host}, "the host needs ", "try: --set zero_optimization.offload_param.device=none");
  EXPECT_EQ(evaluate(untied(), open, {.host = host}).result.tokens, 5 * kLength);
}

}  // namespace
}  // namespace tandem
