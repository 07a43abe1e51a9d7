// model.freeze: what is frozen keeps its weights and has neither gradient nor states; all else trains as it
// would. The reference knows nothing of frozen layouts: it computes every gradient and drops some.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "offload/memory_plan.h"
#include "tests/core/expect_error.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;
using testing::Outcome;
using testing::Where;
using Bits = std::vector<std::byte>;

Arch qwen3_arch() {
  Arch arch = testing::tiny_arch(false);
  arch.qk_norm = true;
  return arch;
}

struct Case {
  const char* name;
  Arch arch;
  std::vector<std::string> freeze;
};

std::vector<Case> cases() {
  return {{"OneMatrixOfEveryLayer", testing::tiny_arch(false), {"*.up_proj.weight"}},
          {"Norms", testing::tiny_arch(false), {"*norm*"}},
          {"TheUntiedEmbedding", testing::tiny_arch(false), {"model.embed_tokens*"}},
          {"AllBelowTheLastLayer", testing::tiny_arch(false), {"*embed*", "model.layers.0.*"}},
          {"AllButTheHead", testing::tiny_arch(false), {"*embed*", "model.layers.*"}},
          {"TheUntiedHead", testing::tiny_arch(false), {"lm_head.weight"}},
          {"ALayerInTheMiddle", testing::tiny_arch(true), {"model.layers.1.*"}},
          {"TheTiedEmbedding", testing::tiny_arch(true), {"*embed*"}},
          {"TheTiedEmbeddingAndALayer", testing::tiny_arch(true), {"*embed*", "*layers.0*"}},
          {"NormsOfQueriesAndKeys", qwen3_arch(), {"*q_norm*", "*k_proj*"}},
          {"Gpt2Biases", testing::gpt2_arch(), {"*.bias"}},
          {"Gpt2Weights", testing::gpt2_arch(), {"*.h.*.weight"}},
          {"Gpt2WordsButNotPositions", testing::gpt2_arch(), {"*wte*"}},
          {"Gpt2PositionsButNotWords", testing::gpt2_arch(), {"*wpe*"}}};
}

Bits slice(const Outcome& outcome, Plane plane, const ParamSpec& spec, DType dtype) {
  const bool state = plane != Plane::weights;
  const size_t element = state ? sizeof(float) : size_of(dtype);
  const auto begin = outcome.planes.at(plane).at(static_cast<size_t>(spec.block)).begin() +
                     static_cast<std::ptrdiff_t>(static_cast<size_t>(spec.offset) * element);
  return {begin, begin + static_cast<std::ptrdiff_t>(static_cast<size_t>(spec.numel) * element)};
}

/// Every parameter's weights and, where it is trained, states; losses and the norm.
void expect_equal(const Outcome& engine, const Outcome& serial, const EngineOptions& options) {
  const ParamTable frozen(options.arch, {}, options.freeze), whole(options.arch);
  for (const ParamSpec& spec : frozen.params()) {
    const ParamSpec& there = *whole.find(spec.name);
    EXPECT_EQ(slice(engine, Plane::weights, spec, options.dtype),
              slice(serial, Plane::weights, there, options.dtype))
        << spec.name;
    if (spec.frozen) continue;
    for (const Plane plane : {Plane::master, Plane::exp_avg, Plane::exp_avg_sq})
      EXPECT_EQ(slice(engine, plane, spec, options.dtype), slice(serial, plane, there, options.dtype))
          << spec.name;
  }
  ASSERT_EQ(engine.decisions.size(), serial.decisions.size());
  for (size_t i = 0; i < engine.decisions.size(); ++i) {
    EXPECT_EQ(engine.decisions[i].loss, serial.decisions[i].loss) << i;
    // The same squares in another order: a few thousand additions in double.
    EXPECT_NEAR(engine.decisions[i].grad_norm, serial.decisions[i].grad_norm,
                1e-12 * serial.decisions[i].grad_norm);
  }
}

EngineOptions options_of(const Case& c) {
  EngineOptions options;
  options.arch = c.arch;
  options.freeze = c.freeze;
  options.micro_batches = 2;
  return options;
}

class IdentityOfFreezing : public ::testing::TestWithParam<Case> {};

TEST_P(IdentityOfFreezing, TrainsTheRestAsASerialLoopThatDropsGradients) {
  EngineOptions options = options_of(GetParam());
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Schedule schedule : {Schedule::synchronous, Schedule::exact, Schedule::delayed}) {
      options.dtype = dtype;
      options.on_nonfinite = dtype == DType::f32 ? OnNonfinite::stop : OnNonfinite::skip;  // early, gated
      options.policy.schedule = schedule;
      options.policy.warmup_steps = 1;
      options.prediction = 1;
      expect_equal(testing::run_engine(options, 4), testing::run_serial(options, 4), options);
    }
}

TEST_P(IdentityOfFreezing, HoldsOverPlacementOrderKeepingAndChaos) {
  EngineOptions options = options_of(GetParam());
  options.dtype = DType::bf16;
  options.clip = 0.5;
  options.policy.schedule = Schedule::delayed;
  options.policy.warmup_steps = 1;
  options.prediction = 1;
  const Outcome expected = testing::run_engine(options, 4);
  options.where = Where::mixed;
  options.order = Order::micro_batch_major;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 4), expected), "");
  options.where = Where::device;
  options.keep = Keep::all;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 4), expected), "");
  for (const Where where : {Where::host, Where::mixed}) {
    options.where = where;
    options.window = 2;
    EXPECT_EQ(testing::difference(testing::run_engine(options, 4), expected), "");
  }
  options.chaos_seed = 7;
  EXPECT_EQ(testing::difference(testing::run_engine(options, 4), expected), "");
}

TEST_P(IdentityOfFreezing, GoesOnFromASaveBitForBit) {
  EngineOptions options = options_of(GetParam());
  options.dtype = DType::bf16;
  options.policy.schedule = Schedule::delayed;
  options.policy.warmup_steps = 1;
  options.prediction = 1;
  EngineRig first(options);
  first.run(3);
  EngineRig second(options, first.save());
  second.run(2);
  EXPECT_EQ(testing::difference(second.outcome(), testing::run_engine(options, 5),
                                {Plane::master, Plane::exp_avg, Plane::exp_avg_sq, Plane::weights,
                                 Plane::lagged, Plane::predicted}),
            "");
}

/// By arithmetic: a frozen element has its 16-bit weight on the device and nothing else anywhere.
TEST_P(IdentityOfFreezing, TakesNoStatesAndNoGradients) {
  EngineOptions options = options_of(GetParam());
  options.dtype = DType::bf16;
  options.policy.schedule = Schedule::delayed;
  EngineRig rig(options);
  rig.run(2);
  const ParamTable whole(options.arch);
  size_t padded_frozen = 0;
  for (const ParamSpec& spec : rig.table().params())
    padded_frozen += spec.frozen ? static_cast<size_t>((spec.numel + 63) / 64 * 64) : 0;
  options.freeze.clear();
  const MemoryPlan with = plan_memory(rig.setup(), rig.table()),
                   without = plan_memory(setup_of(options, whole), whole);
  EXPECT_EQ(without.host_bytes() - with.host_bytes(), 16 * padded_frozen);
  EXPECT_EQ(with.device.at("weights"), without.device.at("weights"));
  EXPECT_LE(with.device.at("gradients"), without.device.at("gradients"));
  EXPECT_EQ(rig.device().counters().total().peak, with.device_bytes());
  EXPECT_EQ(rig.host().counters().total().now, with.host_bytes());
}

INSTANTIATE_TEST_SUITE_P(Cases, IdentityOfFreezing, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ConfigFreeze, GlobsThatMatchNothingOrEverythingAreRefused) {
  const Arch arch = testing::tiny_arch(false);
  const std::vector<std::string> none = {"*.query.*"}, all = {"*"};
  expect_error(Status::usage,
               {"no parameter is named \"*.query.*\"", "model.freeze", "model.embed_tokens.weight"},
               [&] { const ParamTable table(arch, {}, none); });
  expect_error(Status::usage, {"every parameter is frozen", "model.freeze"},
               [&] { const ParamTable table(arch, {}, all); });
}

}  // namespace
}  // namespace tandem
