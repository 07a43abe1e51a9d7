// Logits, loss and every gradient against transformers, in fp32 (the goldens are computed in double).
#include <gtest/gtest.h>

#include <algorithm>
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

/// A parameter's values in the order of the files, from the block's, or back: its own inverse but for sizes.
std::vector<float> turned(const ParamSpec& spec, std::span<const float> values, bool to_files) {
  std::vector<float> result(values.begin(), values.end());
  if (!spec.transposed) return result;
  const auto outs = static_cast<size_t>(spec.shape[0]), ins = static_cast<size_t>(spec.shape[1]);
  for (size_t o = 0; o < outs; ++o)
    for (size_t i = 0; i < ins; ++i)
      (to_files ? result[i * outs + o] : result[o * ins + i]) =
          to_files ? values[o * ins + i] : values[i * outs + o];
  return result;
}

void fill(const ParamSpec& spec, std::span<float> out) {
  golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
  std::ranges::copy(turned(spec, out, false), out.begin());
}

ModelBench bench_of(const golden::GoldenFile& golden, const Arch& arch, Keep keep,
                    const ModelBench::Fill& weights = fill) {
  return {arch, DType::f32, golden.integer("batch"), golden.integer("length"), keep, weights};
}

double worst_gradient(const golden::GoldenFile& golden, const ModelBench& bench,
                      const ModelBench::Result& result) {
  double worst = 0;
  for (const ParamSpec& spec : bench.table.params()) {
    const auto& block = result.gradient[static_cast<size_t>(spec.block)];
    const auto gradient =
        std::span(block).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel));
    const double error = golden::gradient_error(golden, spec.name, turned(spec, gradient, true));
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

void drop_positions(Arch& arch) { arch.learned_positions = false; }
void shift_eps(Arch& arch) { arch.norm_eps += 1e-3; }
void drop_attention_factor(Arch& arch) { arch.rope.attention_factor = 1; }

/// What each golden must tell apart: its feature off, or off by one.
const std::map<std::string, void (*)(Arch&)> kPlanted = {
    {"gpt2", drop_positions},         {"gpt2_untied", shift_eps},
    {"llama_biases", drop_biases},    {"llama_yarn", drop_attention_factor},
    {"mistral_window", widen_by_one}, {"qwen2_biases", drop_biases},
    {"qwen2_window", widen_by_one},   {"qwen3_tied", drop_qk_norm},
    {"qwen3_window", widen_by_one},
};

TEST_P(ParityFamily, NoticesWhenItsFeatureIsOff) {
  Arch planted = golden::family_arch(GetParam());
  kPlanted.at(GetParam())(planted);
  expect_noticed(golden::load_family(GetParam()), planted);
}

/// Attention's output projection is square: without the transpose its shape is still right.
TEST(ParityTranspose, IsNoticedWhereItIsMissing) {
  const golden::GoldenFile golden = golden::load_family("gpt2");
  ModelBench bench = bench_of(golden, golden::family_arch("gpt2"), Keep::input,
                              [](const ParamSpec& spec, std::span<float> out) {
                                fill(spec, out);
                                if (spec.name != "transformer.h.1.attn.c_proj.weight") return;
                                std::ranges::copy(turned(spec, out, true), out.begin());
                              });
  EXPECT_GT(golden::logits_error(golden, run(golden, bench).logits), 10 * kForward);
}

INSTANTIATE_TEST_SUITE_P(Families, ParityFamily, ::testing::ValuesIn(golden::family_variants()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
