// Logits, loss and every gradient against transformers, in fp32, bf16 and fp16 (the goldens are computed in
// double).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/offload/golden_weights.h"
#include "tests/offload/model_bench.h"
#include "tests/offload/parity_faults.h"
#include "tests/offload/parity_helpers.h"

namespace tandem {
namespace {

using golden::worse;
using testing::ModelBench;

/// Relative errors, as parity_helpers.h has them; the gradient is the worst parameter's.
struct Errors {
  double loss = 0, logits = 0, gradient = 0;
};

/// Twice the worst of all variants of transformers itself in that dtype, which tests/golden/spread.py prints:
/// fp32 1.3e-7, 6.5e-6, 5.5e-6; bf16 6.3e-4, 0.13, 0.14; fp16 1.2e-4, 0.013, 0.014. In units of roundoff,
/// 2^-8 and 2^-11, the two 16-bit rows are the same model's amplification: a third, 54 to 67, 57 to 72.
struct Bound {
  DType dtype;
  Errors most;
};
constexpr Bound kBounds[] = {{DType::f32, {2.6e-7, 1.3e-5, 1.1e-5}},
                             {DType::bf16, {1.3e-3, 0.26, 0.28}},
                             {DType::f16, {2.4e-4, 0.026, 0.028}}};

Errors errors_of(const std::string& variant, const Arch& arch, const golden::Fill& weights, DType dtype,
                 Keep keep) {
  const golden::GoldenFile golden = golden::load(variant);
  const int64_t batch = golden.integer("batch"), length = golden.integer("length");
  ModelBench bench(arch, dtype, batch, length, keep, weights);
  const ModelBench::Result result = bench.run(golden::batch(0, batch, length));
  Errors errors{golden::loss_error(golden, result.loss), golden::logits_error(golden, result.logits), 0};
  const std::vector<std::string> known = golden.parameters();
  for (const ParamSpec& spec : bench.table.params()) {
    if (!std::ranges::binary_search(known, spec.name)) continue;  // a head that a fault brought
    const auto& block = result.gradient[static_cast<size_t>(spec.block)];
    const auto gradient =
        std::span(block).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel));
    errors.gradient = worse(golden::gradient_error(golden, spec.name, golden::turned(spec, gradient, true)),
                            errors.gradient);
  }
  return errors;
}

class ParityModel : public ::testing::TestWithParam<std::string> {};

/// Prints a row of bench/results/parity.md for each dtype.
TEST_P(ParityModel, LogitsLossAndGradientsAreThoseOfTransformers) {
  const Arch arch = golden::arch_of(GetParam());
  ASSERT_EQ(golden::load(GetParam()).parameters().size(), ParamTable(arch).params().size());
  for (const auto& [dtype, most] : kBounds) {
    for (const Keep keep : {Keep::all, Keep::input}) {
      const Errors errors = errors_of(GetParam(), arch, golden::fill_stored, dtype, keep);
      EXPECT_LE(errors.loss, most.loss) << name_of(dtype);
      EXPECT_LE(errors.logits, most.logits) << name_of(dtype);
      EXPECT_LE(errors.gradient, most.gradient) << name_of(dtype);
      if (keep == Keep::all)
        std::printf("| %s | %s | %.1e | %.1e | %.1e |\n", GetParam().c_str(),
                    std::string(name_of(dtype)).c_str(), errors.loss, errors.logits, errors.gradient);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, ParityModel, ::testing::ValuesIn(golden::variants()),
                         [](const auto& info) { return info.param; });

class ParityModelTwin : public ::testing::TestWithParam<golden::Fault> {};

TEST_P(ParityModelTwin, NoticesTheFault) {
  const golden::Fault& fault = GetParam();
  for (const auto& [dtype, most] : kBounds) {
    if (fault.fine && dtype != DType::f32) continue;
    const Errors errors =
        errors_of(fault.variant, fault.planted_arch(), fault.planted_weights(), dtype, Keep::input);
    EXPECT_GT(errors.logits, most.logits) << name_of(dtype);
    EXPECT_GT(errors.gradient, most.gradient) << name_of(dtype);
  }
}

/// No golden goes without one that every dtype tells.
TEST(ParityModelFaults, EveryGoldenHasOne) {
  for (const std::string& variant : golden::variants())
    EXPECT_TRUE(std::ranges::any_of(golden::faults(), [&](const golden::Fault& fault) {
      return fault.variant == variant && !fault.fine;
    })) << variant;
}

INSTANTIATE_TEST_SUITE_P(Parity, ParityModelTwin, ::testing::ValuesIn(golden::faults()),
                         [](const auto& info) { return golden::name_of(info.param); });

}  // namespace
}  // namespace tandem
