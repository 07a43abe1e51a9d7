// Twenty AdamW steps (clipping, warm-up, decay groups) of every golden through the whole engine, in fp32; the
// goldens are transformers and torch in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/offload/engine_rig.h"
#include "tests/offload/parity_faults.h"
#include "tests/offload/parity_helpers.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using golden::worse;
using testing::EngineOptions;
using testing::Outcome;
using testing::Where;

/// Relative; the weights' of how far a parameter has moved, the worst parameter.
struct Errors {
  double loss = 0, norm = 0, weights = 0;
};

/// Three times the worst of all variants of transformers and torch themselves in fp32, which
/// tests/golden/spread.py prints: 1.0e-6, 3.4e-6, 5.0e-4. (Two roundings of one run part from each other by
/// their sum, and further with every step.)
constexpr Errors kMost{3e-6, 1e-5, 1.5e-3};

EngineOptions options_of(const golden::GoldenFile& golden, const Arch& arch,
                         const golden::Fill& weights = golden::fill_stored) {
  EngineOptions options;
  options.arch = arch;
  options.fill = weights;
  options.micro_batch = golden.integer("batch");
  options.length = golden.integer("length");
  options.clip = golden.number("run.clip");
  options.adam = {golden.number("run.beta1"), golden.number("run.beta2"), golden.number("run.eps"),
                  golden.number("run.decay"), true};
  options.lr = [lr = golden.number("run.lr"), warmup = golden.number("run.warmup")](int64_t n) {
    return lr * std::min(1.0, static_cast<double>(n + 1) / warmup);
  };
  return options;
}

/// The bias of GPT-2's keys shifts all scores of a query alike, so its gradient is zero but for rounding, and
/// Adam divides rounding by itself. Such elements become the golden's, once it is seen that they went no
/// further than Adam's lr a step.
void settle_key_bias(const golden::GoldenFile& golden, const ParamSpec& spec, std::vector<float>& weights) {
  const double reach = golden.number("run.lr") * golden.number("run.steps");
  const std::vector<double>&index = golden.array("final." + spec.name + ".index"),
        &sample = golden.array("final." + spec.name + ".sample");
  for (size_t s = 0; s < index.size(); ++s) {
    const auto i = static_cast<size_t>(index[s]);
    if (i < weights.size() / 3 || i >= weights.size() * 2 / 3) continue;
    EXPECT_LE(std::abs(weights[i] - sample[s]), reach) << spec.name << " " << i;
    weights[i] = static_cast<float>(sample[s]);
  }
}

Errors errors_of(const golden::GoldenFile& golden, const Arch& arch, const Outcome& outcome) {
  Errors errors;
  const auto &losses = golden.array("run.loss"), &norms = golden.array("run.grad_norm");
  EXPECT_EQ(outcome.decisions.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    const Decision& d = outcome.decisions[i];
    errors.loss = worse(std::abs(d.loss - losses[i]) / losses[i], errors.loss);
    errors.norm = worse(std::abs(d.grad_norm - norms[i]) / norms[i], errors.norm);
  }
  const testing::PlaneBits& masters = outcome.planes.at(Plane::master);
  const ParamTable table(arch);
  for (const ParamSpec& spec : table.params()) {
    if (!golden.has_array("final." + spec.name + ".sample")) continue;  // a head that a fault brought
    std::vector<float> weights(static_cast<size_t>(spec.numel));
    std::memcpy(weights.data(), masters[static_cast<size_t>(spec.block)].data() + spec.offset * 4,
                weights.size() * 4);
    if (spec.role == Role::qkv_bias) settle_key_bias(golden, spec, weights);
    errors.weights = worse(golden::final_weight_error(golden, spec.name, golden::turned(spec, weights, true)),
                           errors.weights);
  }
  return errors;
}

Errors errors_of_engine(const golden::GoldenFile& golden, const EngineOptions& options) {
  return errors_of(golden, options.arch, testing::run_engine(options, golden.integer("run.steps")));
}

bool within(const Errors& errors) {
  return errors.loss <= kMost.loss && errors.norm <= kMost.norm && errors.weights <= kMost.weights;
}

class ParityRun : public ::testing::TestWithParam<std::string> {};

/// Prints a row of bench/results/parity.md.
TEST_P(ParityRun, LossesNormsAndWeightsAreThoseOfTorch) {
  const golden::GoldenFile golden = golden::load(GetParam());
  for (const Where where : {Where::host, Where::device}) {
    EngineOptions options = options_of(golden, golden::arch_of(GetParam()));
    options.where = where;
    const Errors errors = errors_of_engine(golden, options);
    EXPECT_LE(errors.loss, kMost.loss);
    EXPECT_LE(errors.norm, kMost.norm);
    EXPECT_LE(errors.weights, kMost.weights);
    if (where == Where::host)
      std::printf("| %s | %.1e | %.1e | %.1e |\n", GetParam().c_str(), errors.loss, errors.norm,
                  errors.weights);
  }
}

/// The twin of every variant: a hyper-parameter a little off.
TEST_P(ParityRun, NoticesWhenBeta2IsOff) {
  const golden::GoldenFile golden = golden::load(GetParam());
  EngineOptions options = options_of(golden, golden::arch_of(GetParam()));
  options.adam.beta2 += 0.005;
  const Errors errors = errors_of_engine(golden, options);
  EXPECT_GT(errors.loss, kMost.loss);
  EXPECT_GT(errors.weights, kMost.weights);
}

INSTANTIATE_TEST_SUITE_P(Parity, ParityRun, ::testing::ValuesIn(golden::variants()),
                         [](const auto& info) { return info.param; });

class ParityRunTwin : public ::testing::TestWithParam<golden::Fault> {};

TEST_P(ParityRunTwin, NoticesTheFault) {
  const golden::GoldenFile golden = golden::load(GetParam().variant);
  const Errors errors =
      errors_of_engine(golden, options_of(golden, GetParam().planted_arch(), GetParam().planted_weights()));
  EXPECT_GT(errors.loss, 10 * kMost.loss);
  EXPECT_GT(errors.norm, 10 * kMost.norm);
  EXPECT_GT(errors.weights, 10 * kMost.weights);
}

INSTANTIATE_TEST_SUITE_P(Parity, ParityRunTwin, ::testing::ValuesIn(golden::faults()),
                         [](const auto& info) { return golden::name_of(info.param); });

Errors errors_with(const std::function<void(EngineOptions&)>& plant) {
  const golden::GoldenFile golden = golden::load("llama_untied");
  EngineOptions options = options_of(golden, golden::arch_of("llama_untied"));
  plant(options);
  return errors_of_engine(golden, options);
}

TEST(ParityRunOptions, NoticesWhenNothingIsClipped) {
  EXPECT_FALSE(within(errors_with([](EngineOptions& options) { options.clip = 0; })));
}

TEST(ParityRunOptions, NoticesWhenTheDelayIsOn) {
  EXPECT_FALSE(within(errors_with([](EngineOptions& options) {
    options.policy.schedule = Schedule::delayed;
    options.policy.warmup_steps = 5;
  })));
}

TEST(ParityRunOptions, NoticesWhenTheWarmUpIsOneStepOff) {
  EXPECT_FALSE(within(errors_with(
      [](EngineOptions& options) { options.lr = [lr = options.lr](int64_t n) { return lr(n + 1); }; })));
}

TEST(ParityRunOptions, NoticesWhenNothingDecays) {
  EXPECT_FALSE(within(errors_with([](EngineOptions& options) { options.no_decay = {"*"}; })));
}

/// The serial loop, which has the engine's bits, with decay on the norms, too.
TEST(ParityRunOptions, NoticesWhenTheNormsDecay) {
  const golden::GoldenFile golden = golden::load("llama_untied");
  const EngineOptions options = options_of(golden, golden::arch_of("llama_untied"));
  const auto errors = [&](testing::SerialFault fault) {
    return errors_of(golden, options.arch, testing::run_serial(options, golden.integer("run.steps"), fault));
  };
  EXPECT_TRUE(within(errors(testing::SerialFault::none)));
  EXPECT_GT(errors(testing::SerialFault::decays_norms).weights, kMost.weights);
}

}  // namespace
}  // namespace tandem
