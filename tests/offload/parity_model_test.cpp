// Logits, loss and every gradient against transformers, in fp32 (the goldens are computed in double).
#include <gtest/gtest.h>

#include "tests/offload/golden_weights.h"
#include "tests/offload/model_bench.h"
#include "tests/offload/parity_helpers.h"

namespace tandem {
namespace {

using testing::ModelBench;

constexpr double kForward = 1e-5;   // relative, of loss and of each row of logits
constexpr double kGradient = 1e-4;  // of the gradient's norm

ModelBench::Result run(const golden::GoldenFile& golden, ModelBench& bench) {
  return bench.run(golden::batch(0, golden.integer("batch"), golden.integer("length")));
}

ModelBench bench_of(const golden::GoldenFile& golden, const Arch& arch, Keep keep) {
  return {arch,
          DType::f32,
          golden.integer("batch"),
          golden.integer("length"),
          keep,
          [](const ParamSpec& spec, std::span<float> out) {
            golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
          }};
}

double worst_gradient(const golden::GoldenFile& golden, const ModelBench& bench,
                      const ModelBench::Result& result) {
  double worst = 0;
  for (const ParamSpec& spec : bench.table.params()) {
    const auto& block = result.gradient[static_cast<size_t>(spec.block)];
    const double error = golden::gradient_error(
        golden, spec.name,
        std::span(block).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel)));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

class ParityModel : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityModel, LogitsLossAndGradientsAreThoseOfTransformers) {
  const golden::GoldenFile golden = golden::load_llama(GetParam());
  for (const Keep keep : {Keep::all, Keep::input}) {
    ModelBench bench = bench_of(golden, golden.arch(), keep);
    const ModelBench::Result result = run(golden, bench);
    EXPECT_LE(golden::loss_error(golden, result.loss), kForward);
    EXPECT_LE(golden::logits_error(golden, result.logits), kForward);
    ASSERT_EQ(golden.parameters().size(), bench.table.params().size());
    EXPECT_LE(worst_gradient(golden, bench, result), kGradient);
    std::printf("%s: loss %.1e, logits %.1e, gradients %.1e\n", GetParam().c_str(),
                golden::loss_error(golden, result.loss), golden::logits_error(golden, result.logits),
                worst_gradient(golden, bench, result));
  }
}

/// The twin: the variant's own feature off must be seen.
TEST_P(ParityModel, NoticesWhenItsFeatureIsOff) {
  const golden::GoldenFile golden = golden::load_llama(GetParam());
  Arch planted = golden.arch();
  if (planted.rope.scaling != RopeScaling::none) {
    planted.rope.scaling = RopeScaling::none;
  } else {
    planted.rope.theta *= 1.01;
  }
  ModelBench bench = bench_of(golden, planted, Keep::input);
  const ModelBench::Result result = run(golden, bench);
  EXPECT_GT(golden::logits_error(golden, result.logits), 10 * kForward);
  EXPECT_GT(worst_gradient(golden, bench, result), 10 * kGradient);
}

INSTANTIATE_TEST_SUITE_P(Llama, ParityModel, ::testing::ValuesIn(golden::llama_variants()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
