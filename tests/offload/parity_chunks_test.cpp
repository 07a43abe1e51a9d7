// A head that is computed in several chunks of rows, the last one short, against the same sequences alone in
// one chunk each.
#include <gtest/gtest.h>

#include "tests/offload/engine_rig.h"
#include "tests/offload/golden_weights.h"
#include "tests/offload/model_bench.h"

namespace tandem {
namespace {

using testing::ModelBench;

constexpr int64_t kVocab = int64_t{1} << 18, kLength = 40;

ModelBench bench_of(const Arch& arch, int64_t batch) {
  return {arch, DType::f32, batch, kLength, Keep::input, [](const ParamSpec& spec, std::span<float> out) {
            golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
          }};
}

TEST(ParityChunks, AHeadInChunksGivesTheMeanOfItsSequences) {
  Arch arch = testing::tiny_arch(false);
  arch.vocab = kVocab;
  arch.hidden = arch.head_dim = 16;
  arch.heads = arch.kv_heads = 1;
  arch.layers = 1;
  ASSERT_EQ(head_chunk_rows(arch), 64);  // 80 rows: 64 and 16; the cut is inside the second sequence
  const std::vector<int32_t> windows = golden::batch(0, 2, kLength);
  const auto window = [&](size_t row) {
    return std::span(windows).subspan(row * (kLength + 1), kLength + 1);
  };
  ModelBench both = bench_of(arch, 2), one = bench_of(arch, 1);
  const ModelBench::Result chunked = both.run(windows), first = one.run(window(0)),
                           second = one.run(window(1));

  // fp32 sums of 40 and 80 terms: a few units of 6e-8.
  EXPECT_NEAR(chunked.loss, (first.loss + second.loss) / 2, 1e-6 * chunked.loss);
  for (size_t block = 0; block < chunked.gradient.size(); ++block) {
    double off = 0, norm = 0;
    for (size_t i = 0; i < chunked.gradient[block].size(); ++i) {
      const double mean = (double{first.gradient[block][i]} + second.gradient[block][i]) / 2;
      off += (chunked.gradient[block][i] - mean) * (chunked.gradient[block][i] - mean);
      norm += mean * mean;
    }
    EXPECT_GT(norm, 0);
    EXPECT_LE(off, 1e-5 * 1e-5 * norm) << block;
  }
}

}  // namespace
}  // namespace tandem
