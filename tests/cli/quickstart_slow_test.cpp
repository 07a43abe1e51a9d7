// The first run of a newcomer, to its end: configs/quickstart.json as it is.
#include <gtest/gtest.h>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

// Nats per byte on the same held-out text, of the best bigram table that the training text gives. By another
// program: bench/compare/bigram.py configs/sample/kjv_genesis_to_2samuel.txt --sequence-length 128
// --eval-split 0.05
constexpr double kBigram = 2.2762;

TEST(NumbersQuickstart, EndsFarBelowABigramTable) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  const Ran ran = run_tandem({"train", TANDEM_SOURCE_DIR "/configs/quickstart.json", "--quiet", "--json",
                              "--set", "output_dir=" + run});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json::Document document = json::parse(ran.out, "stdout");
  const json::Node end(document);
  EXPECT_LT(end.at("eval_loss").as_double(), kBigram - 0.2);
  EXPECT_EQ(end.at("skipped").as_i64(), 0);
  EXPECT_EQ(end.at("stopped_by").as_string(), "steps");

  int64_t steps = 0, delayed = 0;
  for (const json::Value& line : metrics_of(run)) {
    if (line.find("eval") != nullptr) continue;
    ++steps;
    delayed += line.find("version_lag")->i64().value();
  }
  EXPECT_GE(steps, 300);
  EXPECT_GT(2 * delayed, steps);
}

}  // namespace
}  // namespace tandem
