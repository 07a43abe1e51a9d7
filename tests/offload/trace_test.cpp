// What a trace of a tiny training shows: where its time went, who waited for whom, and how little is copied.
#include <gtest/gtest.h>

#include <algorithm>

#include "offload/trace.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/trace_file.h"

namespace tandem::testing {
namespace {

constexpr int64_t kSteps = 9, kFirst = 4, kLast = 6;  // of the run; traced, from 1
constexpr const char* kLane = "lane optimizer";

EngineOptions options_of(Schedule schedule) {
  EngineOptions options;
  options.policy.schedule = schedule;
  options.policy.warmup_steps = 1;
  options.clip = 1;
  return options;
}

/// A run without pauses, and its trace.
struct TracedRun {
  EngineRig rig;
  std::vector<StepReport> reports;
  TraceFile file;

  explicit TracedRun(const EngineOptions& options) : rig(options), file(run(options)) {}

 private:
  std::string run(const EngineOptions& options) {
    StepTracer tracer(rig.device(), rig.table(), kFirst - 1, kLast);
    std::string text;
    const auto take = [&] {
      while (const auto report = rig.trainer().take_report()) {
        reports.push_back(*report);
        tracer.reported(*report);
      }
      if (!tracer.complete() || !text.empty()) return;
      EXPECT_EQ(tracer.steps(), "steps 4 to 6");
      text = tracer.finish();
    };
    tracer.next(0);
    for (int64_t step = 0; step < kSteps; ++step) {
      rig.trainer().step(FormulaTokens(options, step).view());
      tracer.next(step + 1);
      take();
    }
    rig.trainer().quiesce();
    take();
    return text;
  }
};

class NumbersTraceOf : public ::testing::TestWithParam<Schedule> {};

TEST_P(NumbersTraceOf, TheStepsTimesAreThoseOfTheReports) {
  for (const std::optional<uint64_t> chaos : {std::optional<uint64_t>(), std::optional<uint64_t>(7)}) {
    EngineOptions options = options_of(GetParam());
    options.chaos_seed = chaos;
    if (chaos) options.threads = 1;
    const TracedRun run(options);
    ASSERT_EQ(run.file.of("steps").size(), static_cast<size_t>(kLast - kFirst + 1));
    for (int64_t step = kFirst; step <= kLast; ++step) {
      const StreamTimes& expected = run.reports.at(static_cast<size_t>(step - 1)).times;
      std::map<std::string, double> times = run.file.times(step);
      constexpr double kMs = 1e-6;
      EXPECT_NEAR(times["step"], expected.total_ms, kMs);
      EXPECT_NEAR(times["busy"], expected.busy_ms, kMs);
      EXPECT_NEAR(times["d2h"], expected.d2h_ms, kMs);
      EXPECT_NEAR(times["adam"], expected.adam_ms, kMs);
      EXPECT_NEAR(times["h2d"], expected.h2d_ms, kMs);
      EXPECT_NEAR(times["other"], expected.other_ms, kMs);
      EXPECT_GT(times["busy"], 0);
    }
  }
}

/// Names of the updates of a step that this step's first and last kernels had to wait for, in any way.
std::pair<size_t, size_t> updates_before(const TraceFile& file, int64_t of_step, int64_t step) {
  const TraceFile::Event span = file.step(step);
  const auto ancestors = file.ancestors(kLane);
  const std::string update = "update of step " + std::to_string(of_step) + ": adam";
  std::vector<size_t> counts;
  for (const TraceFile::Event& event : file.of("stream compute"))
    if (event.name.find(" layer ") != std::string::npos && event.category == "compute" &&
        event.begin >= span.begin && event.end <= span.end)
      counts.push_back(static_cast<size_t>(std::ranges::count_if(
          ancestors.at(event.op), [&](const std::string& name) { return name.starts_with(update); })));
  return {counts.at(0), counts.back()};
}

TEST(DelayedTrace, SynchronousBeginsWhenAllUpdatesAreThere) {
  const TracedRun run(options_of(Schedule::synchronous));
  EXPECT_EQ(updates_before(run.file, 4, 5), std::pair(size_t{4}, size_t{4}));
}

TEST(DelayedTrace, ExactBeginsWithItsFirstBlocksAndEndsWithAll) {
  const TracedRun run(options_of(Schedule::exact));
  // The first layer's forward needs the embedding's update and its own, in that order.
  EXPECT_EQ(updates_before(run.file, 4, 5), std::pair(size_t{2}, size_t{4}));
}

TEST(DelayedTrace, DelayedNeverWaitsForTheUpdateBehindIt) {
  const TracedRun run(options_of(Schedule::delayed));
  EXPECT_EQ(updates_before(run.file, 4, 5), std::pair(size_t{0}, size_t{0}));
  EXPECT_EQ(updates_before(run.file, 3, 5).second, 4u) << "the one before that";
}

TEST_P(NumbersTraceOf, TheMainThreadWaitsForTheDecisionAndForRecordedUploadsOnly) {
  const TracedRun run(options_of(GetParam()));
  size_t fences = 0;
  for (int64_t step = kFirst + 1; step <= kLast; ++step) {
    const auto in_step = [&](const std::string& what) { return what + " step " + std::to_string(step); };
    const auto main = run.file.of("main thread");
    const auto entered = std::ranges::find(main, in_step("enter"), &TraceFile::Event::name);
    const auto next =
        std::ranges::find(main, "enter step " + std::to_string(step + 1), &TraceFile::Event::name);
    ASSERT_TRUE(entered != main.end() && next != main.end());
    size_t promises = 0;
    std::set<std::string> promised;
    for (auto event = entered; event != next; ++event) {
      if (event->category != "wait") continue;
      const bool promise = event->reason.starts_with("promise \"upload of version ");
      if (promise) promised.insert(event->reason.substr(0, event->reason.find("\",")));
      (promise ? promises : fences) += 1;
      EXPECT_TRUE(promise || event->reason.find("optimizer") != std::string::npos) << event->reason;
    }
    EXPECT_EQ(promised.size(), 4u) << "one for each block";
    // A lease each: embedding, two layers forward and backward, head. `synchronous` asks for all once more.
    EXPECT_EQ(promises, GetParam() == Schedule::synchronous ? 6u + 4u : 6u);
  }
  // A decision for each step. A step that waits before it has done anything seems to wait in the step before.
  constexpr auto kSteps = static_cast<size_t>(kLast - kFirst);
  EXPECT_GE(fences + 1, kSteps);
  EXPECT_LE(fences, kSteps + 1);
}

TEST_P(NumbersTraceOf, AStepCopiesItsGradientsWeightsTokensAndNumbersOnce) {
  TracedRun run(options_of(GetParam()));
  const ParamTable& table = run.rig.table();
  // By whom the main thread had entered when they were enqueued: that is while they may still have to wait.
  const auto main = run.file.of("main thread");
  const auto begin_of = [&](int64_t step) {
    return std::ranges::find(main, "enter step " + std::to_string(step), &TraceFile::Event::name)->begin;
  };
  for (int64_t step = kFirst + 1; step <= kLast; ++step) {
    std::map<std::string, std::map<std::string, size_t>> bytes;  // of a track, of a name
    std::map<std::string, int> copies;
    for (const TraceFile::Event& event : run.file.events) {
      if (event.bytes == 0 || event.track == "stream h2d_upload") continue;
      if (event.track == "stream compute") continue;  // within the device
      if (event.queued < begin_of(step) || event.queued >= begin_of(step + 1)) continue;
      ++copies[event.track];
      bytes[event.track][event.name] += event.bytes;
    }
    EXPECT_EQ(copies, (std::map<std::string, int>{{"stream d2h_grad", 4 + 1}, {"stream h2d_batch", 1}}));
    for (const BlockSpec& block : table.blocks())
      EXPECT_EQ(bytes["stream d2h_grad"]["gradient of " + block.name + ": copy"],
                static_cast<size_t>(block.trained) * sizeof(float));
    EXPECT_EQ(bytes["stream h2d_batch"]["tokens: copy"], 2 * 16 * sizeof(int32_t));
    // (squares, non-finite) of four blocks, one loss.
    EXPECT_EQ(bytes["stream d2h_grad"]["norms and losses: copy"], (2 * 4 + 1) * sizeof(double));
  }
  // Late by a step, the last version's turn comes while the trace may have ended.
  const int64_t last_version = GetParam() == Schedule::delayed ? kLast - 1 : kLast;
  for (int64_t version = kFirst + 1; version <= last_version; ++version)
    for (const BlockSpec& block : table.blocks()) {
      const std::string name = "version " + std::to_string(version) + " of " + block.name + ": copy";
      size_t count = 0;
      for (const TraceFile::Event& event : run.file.of("stream h2d_upload")) {
        if (event.name != name) continue;
        ++count;
        EXPECT_EQ(event.bytes, static_cast<size_t>(block.trained) * sizeof(float));
        EXPECT_EQ(event.block, block.name);
      }
      EXPECT_EQ(count, 1u) << name;
    }
}

TEST_P(NumbersTraceOf, ArrowsLeadToWhatDidWait) {
  const TracedRun run(options_of(GetParam()));
  EXPECT_GT(run.file.arrows.at("s"), 0);
  for (const TraceFile::Event& event : run.file.events) {
    if (event.category != "wait") continue;
    EXPECT_FALSE(event.reason.empty());
    double sum = 0;
    for (const auto& [cause, us] : event.idle) sum += us;
    EXPECT_NEAR(sum, event.end - event.begin, 1e-3);
  }
}

TEST_P(NumbersTraceOf, ComputesTheSameBitsAsOneWithout) {
  EngineOptions options = options_of(GetParam());
  TracedRun traced(options);
  const Outcome with = traced.rig.outcome(), without = run_engine(options, kSteps);
  EXPECT_EQ(difference(with, without, {Plane::master, Plane::exp_avg, Plane::exp_avg_sq, Plane::weights}),
            "");
}

INSTANTIATE_TEST_SUITE_P(Schedules, NumbersTraceOf,
                         ::testing::Values(Schedule::synchronous, Schedule::exact, Schedule::delayed));

}  // namespace
}  // namespace tandem::testing
