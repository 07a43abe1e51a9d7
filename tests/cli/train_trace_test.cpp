// trace.json of whole runs: which steps, and that metrics.jsonl says the same.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/file.h"
#include "tests/cli/train_runs.h"
#include "tests/offload/trace_file.h"

namespace tandem {
namespace {

testing::TraceFile trace_of(const std::string& run) {
  return testing::TraceFile(read_text(run + "/trace.json", 16u << 20));
}

std::vector<std::string> steps_of(const testing::TraceFile& trace) {
  std::vector<std::string> names;
  for (const auto& event : trace.of("steps")) names.push_back(event.name);
  return names;
}

using Names = std::vector<std::string>;
const Keys kTrace = {{"trace.enabled", "true"},
                     {"zero_optimization.offload_optimizer.schedule", "\"delayed\""},
                     {"train.eval_every", "6"}};

TEST(NumbersTraceFile, ExposedTimesAreThoseOfTheMetrics) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", kTrace);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("traced steps 5 to 7: "), std::string::npos) << ran.err;
  const testing::TraceFile trace = trace_of(runs.path("run"));
  EXPECT_EQ(steps_of(trace), (Names{"step 5", "step 6", "step 7"}));
  int compared = 0;
  for (const json::Value& line : metrics_of(runs.path("run"))) {
    const int64_t step = *line.find("step")->i64();
    if (line.find("eval") != nullptr || step < 5 || step > 7) continue;
    std::map<std::string, double> times = trace.times(step);
    constexpr double kMs = 1e-6;
    for (const json::Member& cause : *line.find("exposed_ms")->object())
      EXPECT_NEAR(times[cause.key], *cause.value.number(), kMs) << step << " " << cause.key;
    EXPECT_NEAR(times["busy"], *line.find("busy_ms")->number(), kMs);
    EXPECT_NEAR(times["step"], *line.find("step_ms")->number(), kMs);
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

TEST(NumbersTraceFile, HoldsWhatWasTracedWhenTheRunEndsEarlyAndTheRestWhenItGoesOn) {
  const TinyRuns runs;
  Ran ran = runs.train("run", kTrace, {"--max-steps", "6"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(steps_of(trace_of(runs.path("run"))), (Names{"step 5", "step 6"}));
  ran = runs.train("run", kTrace, {"--resume", "auto"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(steps_of(trace_of(runs.path("run"))), (Names{"step 7"}));
}

TEST(NumbersTraceFile, ChangesNothingThatIsComputed) {
  const TinyRuns runs;
  Keys off = kTrace;
  off.erase("trace.enabled");
  ASSERT_EQ(runs.train("traced", kTrace).status, 0);
  ASSERT_EQ(runs.train("plain", off).status, 0);
  EXPECT_EQ(computed(runs.path("traced")), computed(runs.path("plain")));
  EXPECT_FALSE(std::filesystem::exists(runs.path("plain") + "/trace.json"));
}

TEST(NumbersTraceFile, IsNoReasonToEndARun) {
  const TinyRuns runs;
  Keys late = kTrace;
  late["trace.start_step"] = "13";
  Ran ran = runs.train("late", late);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("warning: trace.start_step 13 is after the last of 12 steps"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(runs.path("late") + "/trace.json"));

  std::filesystem::create_directories(runs.path("taken") + "/trace.json/folder");
  ran = runs.train("taken", kTrace);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("warning: no trace: cannot "), std::string::npos) << ran.err;
  EXPECT_EQ(metrics_of(runs.path("taken")).size(), 12u + 2u);
}

}  // namespace
}  // namespace tandem
