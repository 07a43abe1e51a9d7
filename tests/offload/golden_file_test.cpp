#include "tests/offload/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>

#include "core/model/params.h"
#include "tests/offload/golden_weights.h"
#include "tests/offload/parity_helpers.h"

namespace tandem::golden {
namespace {

std::string temporary(const std::string& name) { return testing::TempDir() + "tandem_golden_" + name; }

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string raw(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> stream(const std::string& name, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = uniform(fnv1a(name), i);
  return values;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// A golden of one sampled gradient "w": every eighth element, and one projection.
GoldenFile golden_of_gradient(const std::vector<float>& gradient) {
  std::vector<double> index, sample;
  for (size_t i = 3; i < gradient.size(); i += 8) {
    index.push_back(static_cast<double>(i));
    sample.push_back(gradient[i]);
  }
  const std::string path = temporary("gradient");
  write_file(path, fmt::format("tandem-golden 1\narray grad.w.norm f64 1\narray grad.w.index f64 {0}\n"
                               "array grad.w.sample f64 {0}\narray grad.w.projection f64 1\nend\n",
                               index.size()) +
                       raw({std::sqrt(dot(gradient, gradient))}) + raw(index) + raw(sample) +
                       raw({dot(gradient, stream("projection.0", gradient.size()))}));
  return GoldenFile(path);
}

class ParityGolden : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Parity, ParityGolden, testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param; });

/// Those of Llama hold samples of the formulas.
TEST(ParityGoldenFormulas, AreThoseOfTheScript) {
  const GoldenFile golden = load("llama_untied");
  for (const auto& [name, rank] :
       {std::pair{"model.norm.weight", 1}, {"model.layers.1.self_attn.k_proj.weight", 2}}) {
    std::vector<float> weight(64);
    fill_weight(name, rank, weight);
    EXPECT_EQ(golden.array(std::string("formula.weight.") + name),
              std::vector<double>(weight.begin(), weight.end()));
  }
  const std::vector<int32_t> tokens = batch(3, golden.integer("batch"), golden.integer("length"));
  EXPECT_EQ(golden.array("formula.batch.3"), std::vector<double>(tokens.begin(), tokens.end()));
}

/// What the script itself said of the model that it ran, beside what is read from its config.json.
TEST(ParityGoldenModel, IsTheOneThatItsConfigDescribes) {
  const std::map<std::string, RopeScaling> scalings{
      {"default", RopeScaling::none}, {"linear", RopeScaling::linear}, {"llama3", RopeScaling::llama3}};
  for (const char* variant :
       {"llama_head_dim", "llama_linear", "llama_llama3", "llama_tied", "llama_untied"}) {
    const GoldenFile golden = load(variant);
    const Arch arch = arch_of(variant);
    for (const auto& [key, value] : {std::pair{"vocab", arch.vocab},
                                     {"hidden", arch.hidden},
                                     {"intermediate", arch.intermediate},
                                     {"layers", arch.layers},
                                     {"heads", arch.heads},
                                     {"kv_heads", arch.kv_heads},
                                     {"head_dim", arch.head_dim},
                                     {"max_positions", arch.max_positions},
                                     {"tied", int64_t{arch.tied}}})
      EXPECT_EQ(golden.integer(key), value) << variant << " " << key;
    for (const auto& [key, value] : {std::pair{"norm_eps", arch.norm_eps},
                                     {"rope_theta", arch.rope.theta},
                                     {"rope_factor", arch.rope.factor},
                                     {"rope_low_freq_factor", arch.rope.low_freq_factor},
                                     {"rope_high_freq_factor", arch.rope.high_freq_factor}})
      EXPECT_EQ(golden.number(key), value) << variant << " " << key;
    EXPECT_EQ(golden.integer("rope_original_max_position"), arch.rope.original_max_position) << variant;
    EXPECT_EQ(scalings.at(golden.word("rope_type")), arch.rope.scaling) << variant;
  }
}

TEST_P(ParityGolden, HoldsEveryParameterOfItsModel) {
  const GoldenFile golden = load(GetParam());
  const ParamTable table(arch_of(GetParam()));
  EXPECT_EQ(golden.parameters().size(), table.params().size());
  for (const ParamSpec& spec : table.params()) {
    const std::string prefix = "grad." + spec.name;
    const double norm = golden.scalar(prefix + ".norm");
    EXPECT_GT(norm, 1e-3) << spec.name;  // a gradient of nothing would prove nothing
    EXPECT_GT(golden.scalar("final." + spec.name + ".moved"), 0) << spec.name;
    if (!golden.has_array(prefix + ".full")) {
      EXPECT_EQ(golden.array(prefix + ".projection").size(), 4u) << spec.name;
      EXPECT_LT(golden.array(prefix + ".index").back(), static_cast<double>(spec.numel)) << spec.name;
      continue;
    }
    const std::vector<double>& full = golden.array(prefix + ".full");
    ASSERT_EQ(static_cast<int64_t>(full.size()), spec.numel) << spec.name;
    const std::vector<float> gradient(full.begin(), full.end());
    EXPECT_NEAR(std::sqrt(dot(gradient, gradient)), norm, 1e-7 * norm)
        << spec.name;  // f32 rounding of the elements
  }
}

TEST_P(ParityGolden, RunStartsAtTheLossOfTheFirstBatch) {
  const GoldenFile golden = load(GetParam());
  ASSERT_EQ(golden.array("run.loss").size(), 20u);
  EXPECT_EQ(golden.array("run.grad_norm").size(), 20u);
  EXPECT_DOUBLE_EQ(golden.array("run.loss").front(), golden.scalar("loss"));
  double squares = 0;
  for (const std::string& name : golden.parameters())
    squares += golden.scalar("grad." + name + ".norm") * golden.scalar("grad." + name + ".norm");
  EXPECT_NEAR(golden.array("run.grad_norm").front(), std::sqrt(squares), 1e-12 * std::sqrt(squares));
}

TEST_P(ParityGolden, ErrorsAreRelativeToTheNorm) {
  const GoldenFile golden = load(GetParam());
  const auto whole = [&](const std::string& name) { return golden.has_array("grad." + name + ".full"); };
  const std::vector<std::string> names = golden.parameters();
  const std::string name = *std::ranges::find_if(names, whole);
  const std::vector<double>& full = golden.array("grad." + name + ".full");
  std::vector<float> gradient(full.begin(), full.end());
  EXPECT_EQ(gradient_error(golden, name, gradient), 0);
  const double norm = golden.scalar("grad." + name + ".norm");
  gradient[17] += static_cast<float>(0.01 * norm);
  EXPECT_NEAR(gradient_error(golden, name, gradient), 0.01, 1e-6);
  EXPECT_DOUBLE_EQ(loss_error(golden, golden.scalar("loss") * 1.25), 0.25);
}

TEST(ParityErrors, SampledGradientSeesWhatTheSamplesMiss) {
  const std::vector<float> gradient = stream("gradient", 8192);
  const GoldenFile golden = golden_of_gradient(gradient);
  EXPECT_EQ(gradient_error(golden, "w", gradient), 0);

  std::vector<float> scaled = gradient;
  for (float& x : scaled) x *= 1.001f;
  EXPECT_NEAR(gradient_error(golden, "w", scaled), 1e-3,
              2e-4);  // 1024 samples: 1/sqrt(2048) of the estimate, 4 sigma

  std::vector<float> swapped = gradient;  // two halves exchanged outside the samples: the norm stays
  for (size_t i = 0; i < 4096; ++i)
    if (i % 8 != 3) std::swap(swapped[i], swapped[i + 4096]);
  EXPECT_GT(gradient_error(golden, "w", swapped), 0.1);

  std::vector<float> poisoned = gradient;
  poisoned[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(gradient_error(golden, "w", poisoned)));
}

TEST(ParityErrors, OneWrongRowOfLogitsIsSeen) {
  constexpr size_t kVocab = 256, kRows = 6;
  std::vector<float> logits = stream("logits", kRows * kVocab);
  std::vector<double> norms, projections;
  for (size_t r = 0; r < kRows; ++r) {
    const std::vector<float> row(logits.begin() + r * kVocab, logits.begin() + (r + 1) * kVocab);
    norms.push_back(std::sqrt(dot(row, row)));
    projections.push_back(dot(row, stream("projection.0", kVocab)));
  }
  const std::string path = temporary("logits");
  write_file(path,
             "tandem-golden 1\nset vocab 256\narray logits.norm f64 6\narray logits.projection f64 6\n"
             "array logits.row_index f64 1\narray logits.rows f64 256\nend\n" +
                 raw(norms) + raw(projections) + raw({2}) +
                 raw({logits.begin() + 2 * kVocab, logits.begin() + 3 * kVocab}));
  const GoldenFile golden(path);
  EXPECT_EQ(logits_error(golden, logits), 0);
  std::vector<float> wrong = logits;
  std::copy_n(logits.begin(), kVocab, wrong.begin() + 4 * kVocab);  // row 4 is not stored whole
  EXPECT_GT(logits_error(golden, wrong), 0.01);
  wrong = logits;
  wrong[2 * kVocab + 9] += static_cast<float>(0.001 * norms[2]);
  EXPECT_NEAR(logits_error(golden, wrong), 1e-3,
              1e-3 * (std::sqrt(3.0) - 1));  // its projection: at most sqrt(3) of it
}

TEST(ParityErrors, FinalWeightsAreMeasuredByHowFarTheyMoved) {
  const std::string path = temporary("final");
  write_file(path,
             "tandem-golden 1\narray final.w.moved f64 1\narray final.w.index f64 2\narray final.w.sample "
             "f64 2\nend\n" +
                 raw({0.5}) + raw({1, 3}) + raw({2, 4}));
  const std::vector<float> weights{
      9, 2, 9, 4.25f};  // off by 0.25 in one of two samples of four: 0.25 * sqrt(2) over all
  EXPECT_DOUBLE_EQ(final_weight_error(GoldenFile(path), "w", weights), 0.25 * std::sqrt(2.0) / 0.5);
}

TEST(ParityErrors, ABrokenGoldenIsRefused) {
  const std::string path = temporary("broken");
  const std::string header = "tandem-golden 1\nset name x\narray a f64 2\nend\n";
  for (const std::string& bytes :
       {std::string(), header.substr(0, 40), header, header + raw({1}), header + raw({1, 2, 3}),
        "tandem-golden 2\nend\n" + std::string(), std::string("tandem-golden 1\nlist a 1\nend\n")}) {
    write_file(path, bytes);
    EXPECT_THROW(GoldenFile{path}, std::runtime_error) << bytes;
  }
  write_file(path, header + raw({1, 2}));
  const GoldenFile golden(path);
  EXPECT_EQ(golden.array("a"), (std::vector<double>{1, 2}));
  EXPECT_THROW((void)golden.scalar("a"), std::runtime_error);
  EXPECT_THROW((void)golden.array("b"), std::runtime_error);
  EXPECT_THROW((void)golden.integer("b"), std::runtime_error);
}

}  // namespace
}  // namespace tandem::golden
