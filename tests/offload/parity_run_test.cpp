// Twenty AdamW steps (clipping, warm-up, decay groups) of every golden through the whole engine, in fp32; the
// goldens are transformers and torch in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/offload/engine_rig.h"
#include "tests/offload/parity_helpers.h"
#include "tests/offload/serial_reference.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::Outcome;
using testing::Where;

// About thirty, twenty-five and ten times what was measured (fp32 against the golden in double).
constexpr double kLoss = 1e-6, kNorm = 5e-6;  // relative
constexpr double kWeights = 3e-4;             // of how far a parameter has moved

EngineOptions options_of(const golden::GoldenFile& golden) {
  EngineOptions options;
  options.arch = golden.arch();
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

double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

struct Errors {
  double loss = 0, norm = 0, weights = 0;
};

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
    std::vector<float> weights(static_cast<size_t>(spec.numel));
    std::memcpy(weights.data(), masters[static_cast<size_t>(spec.block)].data() + spec.offset * 4,
                weights.size() * 4);
    errors.weights = worse(golden::final_weight_error(golden, spec.name, weights), errors.weights);
  }
  return errors;
}

bool within(const Errors& errors) {
  return errors.loss <= kLoss && errors.norm <= kNorm && errors.weights <= kWeights;
}

class ParityRun : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityRun, LossesNormsAndWeightsAreThoseOfTorch) {
  const golden::GoldenFile golden = golden::load_llama(GetParam());
  for (const Where where : {Where::host, Where::device}) {
    EngineOptions options = options_of(golden);
    options.where = where;
    const Errors errors =
        errors_of(golden, options.arch, testing::run_engine(options, golden.integer("run.steps")));
    std::printf("%s: loss %.1e, norm %.1e, weights %.1e\n", GetParam().c_str(), errors.loss, errors.norm,
                errors.weights);
    EXPECT_LE(errors.loss, kLoss);
    EXPECT_LE(errors.norm, kNorm);
    EXPECT_LE(errors.weights, kWeights);
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, ParityRun, ::testing::ValuesIn(golden::llama_variants()),
                         [](const auto& info) { return info.param; });

Errors errors_with(const std::function<void(EngineOptions&)>& plant) {
  const golden::GoldenFile golden = golden::load_llama("untied");
  EngineOptions options = options_of(golden);
  plant(options);
  return errors_of(golden, options.arch, testing::run_engine(options, golden.integer("run.steps")));
}

TEST(ParityRunTwin, NoticesWhenNothingIsClipped) {
  EXPECT_FALSE(within(errors_with([](EngineOptions& options) { options.clip = 0; })));
}

TEST(ParityRunTwin, NoticesWhenTheDelayIsOn) {
  EXPECT_FALSE(within(errors_with([](EngineOptions& options) {
    options.policy.schedule = Schedule::delayed;
    options.policy.warmup_steps = 5;
  })));
}

TEST(ParityRunTwin, NoticesWhenTheWarmUpIsOneStepOff) {
  EXPECT_FALSE(within(errors_with(
      [](EngineOptions& options) { options.lr = [lr = options.lr](int64_t n) { return lr(n + 1); }; })));
}

TEST(ParityRunTwin, NoticesWhenNothingDecays) {
  EXPECT_FALSE(within(errors_with([](EngineOptions& options) { options.no_decay = {"*"}; })));
}

/// The serial loop, which has the engine's bits, with decay on the norms, too.
TEST(ParityRunTwin, NoticesWhenTheNormsDecay) {
  const golden::GoldenFile golden = golden::load_llama("untied");
  const EngineOptions options = options_of(golden);
  const auto errors = [&](testing::SerialFault fault) {
    return errors_of(golden, options.arch, testing::run_serial(options, golden.integer("run.steps"), fault));
  };
  EXPECT_TRUE(within(errors(testing::SerialFault::none)));
  EXPECT_GT(errors(testing::SerialFault::decays_norms).weights, kWeights);
}

}  // namespace
}  // namespace tandem
