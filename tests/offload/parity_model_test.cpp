// Logits, loss and every gradient against transformers, in fp32 (the goldens are computed in double).
#include <gtest/gtest.h>

#include <map>

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

void expect_parity(const golden::GoldenFile& golden, const Arch& arch, const std::string& name) {
  for (const Keep keep : {Keep::all, Keep::input}) {
    ModelBench bench = bench_of(golden, arch, keep);
    const ModelBench::Result result = run(golden, bench);
    EXPECT_LE(golden::loss_error(golden, result.loss), kForward);
    EXPECT_LE(golden::logits_error(golden, result.logits), kForward);
    ASSERT_EQ(golden.parameters().size(), bench.table.params().size());
    EXPECT_LE(worst_gradient(golden, bench, result), kGradient);
    std::printf("%s: loss %.1e, logits %.1e, gradients %.1e\n", name.c_str(),
                golden::loss_error(golden, result.loss), golden::logits_error(golden, result.logits),
                worst_gradient(golden, bench, result));
  }
}

/// The planted fault must be seen.
void expect_noticed(const golden::GoldenFile& golden, const Arch& planted) {
  ModelBench bench = bench_of(golden, planted, Keep::input);
  const ModelBench::Result result = run(golden, bench);
  EXPECT_GT(golden::logits_error(golden, result.logits), 10 * kForward);
  EXPECT_GT(worst_gradient(golden, bench, result), 10 * kGradient);
}

class ParityModel : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityModel, LogitsLossAndGradientsAreThoseOfTransformers) {
  const golden::GoldenFile golden = golden::load_llama(GetParam());
  expect_parity(golden, golden.arch(), GetParam());
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
  expect_noticed(golden, planted);
}

INSTANTIATE_TEST_SUITE_P(Llama, ParityModel, ::testing::ValuesIn(golden::llama_variants()),
                         [](const auto& info) { return info.param; });

class ParityFamily : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityFamily, LogitsLossAndGradientsAreThoseOfTransformers) {
  expect_parity(golden::load_family(GetParam()), golden::family_arch(GetParam()), GetParam());
}

void widen_by_one(Arch& arch) {
  for (int64_t& window : arch.windows) window += window > 0 ? 1 : 0;
}
void drop_biases(Arch& arch) { arch.qkv_bias = arch.o_bias = arch.mlp_bias = false; }
void drop_qk_norm(Arch& arch) { arch.qk_norm = false; }

void drop_attention_factor(Arch& arch) { arch.rope.attention_factor = 1; }

/// What each golden must tell apart: its feature off, or off by one.
const std::map<std::string, void (*)(Arch&)> kPlanted = {
    {"llama_biases", drop_biases},  {"llama_yarn", drop_attention_factor}, {"mistral_window", widen_by_one},
    {"qwen2_biases", drop_biases},  {"qwen2_window", widen_by_one},        {"qwen3_tied", drop_qk_norm},
    {"qwen3_window", widen_by_one},
};

TEST_P(ParityFamily, NoticesWhenItsFeatureIsOff) {
  Arch planted = golden::family_arch(GetParam());
  kPlanted.at(GetParam())(planted);
  expect_noticed(golden::load_family(GetParam()), planted);
}

INSTANTIATE_TEST_SUITE_P(Families, ParityFamily, ::testing::ValuesIn(golden::family_variants()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
