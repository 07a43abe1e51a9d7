// How a run ends and what may start in its folder, seen from outside the program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "core/io/file.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

json::Value result_of(const Ran& ran) { return json::parse(ran.out, "result").root; }
std::string text(const json::Value& object, const char* key) { return *object.find(key)->string(); }
int64_t number(const json::Value& object, const char* key) { return *object.find(key)->i64(); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// Long enough to be met by a signal; a test that is late all the same tries again.
const Keys kLong = {{"train.steps", "1000"}, {"data.eval", "null"}};

/// Starts the run afresh until the signals find it at work.
Ran interrupted(const TinyRuns& runs, const std::string& name, const Keys& keys,
                const std::function<void(pid_t)>& signals) {
  for (int attempt = 0;; ++attempt) {
    fs::remove_all(runs.path(name));
    const Ran ran = run_watched({"train", runs.config(name, keys), "--json"}, [&](pid_t process) {
      if (wait_for(process, [&] { return count_lines(runs.path(name) + "/metrics.jsonl") >= 3; }))
        signals(process);
    });
    if (ran.status != 0 || attempt == 20) return ran;
  }
}

TEST(ResumeStop, SignalsSaveAndTellTheStatus) {
  const TinyRuns runs;
  for (const auto& [signal, status] : {std::pair(SIGTERM, 143), std::pair(SIGINT, 130)}) {
    const Ran ran =
        interrupted(runs, "run", kLong, [signal = signal](pid_t process) { kill(process, signal); });
    ASSERT_EQ(ran.status, status) << ran.err;
    const json::Value result = result_of(ran);
    EXPECT_EQ(text(result, "stopped_by"), "signal");
    const std::string saved = checkpoint_path(runs.path("run"), number(result, "step"));
    EXPECT_EQ(text(result, "checkpoint"), saved);
    EXPECT_TRUE(has(ran.err, "saved " + saved)) << ran.err;
    EXPECT_TRUE(is_complete(saved));
    EXPECT_LT(number(result, "step"), 1000);
    EXPECT_EQ(computed(runs.path("run")).size(), static_cast<size_t>(number(result, "step")));
  }
}

TEST(ResumeStop, ASecondSignalEndsAtOnceWithoutASave) {
  const TinyRuns runs;
  // Stopped, the process takes both signals before it goes on, in an order that nobody promises.
  const Ran ran = interrupted(runs, "run", kLong, [](pid_t process) {
    kill(process, SIGSTOP);
    kill(process, SIGTERM);
    kill(process, SIGINT);
    kill(process, SIGCONT);
  });
  EXPECT_TRUE(ran.status == 130 || ran.status == 143) << ran.status << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(names_in(runs.path("run") + "/checkpoints").empty());
}

TEST(ResumeStop, ASignalEndsAnEvaluationAndResumingMakesUpForIt) {
  const TinyRuns runs;
  std::string many;
  for (int i = 0; i < 4000; ++i) many += "abcdefgh";
  runs.folder().write("large.bin", many);
  const Keys keys = {{"data.eval", "\"large.bin\""}, {"train.steps", "4"}, {"train.eval_every", "2"}};
  // Three lines and no further one: the evaluation at the end is on its way, or the second step is waited
  // for.
  const Ran ran = interrupted(runs, "run", keys, [](pid_t process) { kill(process, SIGTERM); });
  ASSERT_EQ(ran.status, 143) << ran.err;
  ASSERT_EQ(runs.train("run", keys, {"--resume", "auto"}).status, 0);
  ASSERT_EQ(runs.train("whole", keys).status, 0);
  EXPECT_EQ(evaluated(runs.path("run")), evaluated(runs.path("whole")));
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
}

TEST(ResumeStop, MaxStepsCountsFromTheVeryFirstStartAndChangesNothingElse) {
  const TinyRuns runs;
  const Ran whole = runs.train("whole", {}, {"--json"});
  EXPECT_EQ(text(result_of(whole), "stopped_by"), "steps");
  for (const int64_t step : {5, 8, 8, 3}) {
    const Ran ran =
        runs.train("run", {}, {"--json", "--resume", "auto", "--max-steps", std::to_string(step)});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json::Value result = result_of(ran);
    EXPECT_EQ(number(result, "step"), std::max<int64_t>(step, 5 + (step == 3 ? 3 : 0)));
    EXPECT_EQ(text(result, "stopped_by"), "max_steps");
    EXPECT_TRUE(result.find("eval_loss")->is_null()) << "only the run's end is evaluated";
  }
  const auto all = computed(runs.path("whole")), some = computed(runs.path("run"));
  EXPECT_EQ(some, std::vector<std::string>(all.begin(), all.begin() + 8)) << "the same learning rates, too";
  EXPECT_EQ(runs.train("over", {}, {"--max-steps", "99"}).status, 0);
  EXPECT_EQ(computed(runs.path("over")), all);
}

TEST(ResumeStop, AFinishedRunDoesNothingMore) {
  const TinyRuns runs;
  const Ran first = runs.train("run", {}, {"--json"});
  const auto lines = metrics_of(runs.path("run"));
  const auto content = content_of(checkpoint_path(runs.path("run"), 12));
  const Ran again = runs.train("run", {}, {"--json", "--resume", "auto"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(metrics_of(runs.path("run")), lines);
  EXPECT_EQ(content_of(checkpoint_path(runs.path("run"), 12)), content);
  const json::Value before = result_of(first), after = result_of(again);
  for (const char* same : {"step", "updates", "skipped", "eval_loss", "checkpoint", "stopped_by"})
    EXPECT_EQ(*before.find(same), *after.find(same)) << same;
  EXPECT_EQ(number(after, "tokens"), 0);
}

TEST(ResumeFolder, AUsedOneIsRefusedWithoutResume) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "2"}).status, 0);
  const auto before = metrics_of(runs.path("run"));
  const Ran ran = runs.train("run");
  EXPECT_EQ(ran.status, 2);
  EXPECT_EQ(ran.err, "error: the run folder holds a run already\n  at: " + runs.path("run") +
                         "\n  try: --resume auto goes on with it; another output_dir starts a new one\n");
  EXPECT_EQ(metrics_of(runs.path("run")), before);
}

TEST(ResumeFolder, ALockedOneIsRefused) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "2"}).status, 0);
  const std::string lock = runs.path("run") + "/run.lock";
  const Descriptor held(open(lock.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX | LOCK_NB), 0);
  const Ran ran = runs.train("run", {}, {"--resume", "auto"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(has(ran.err, "error: another process trains in this run folder\n  at: " + lock)) << ran.err;
  fs::create_directory(runs.path("other"));
  fs::copy_file(lock, runs.path("other") + "/run.lock");
  EXPECT_EQ(runs.train("other", {}, {"--max-steps", "1"}).status, 0) << "a lock that nobody holds is none";
}

TEST(ResumeFolder, AutoStartsAfreshWhereThereIsNothing) {
  const TinyRuns runs;
  const Ran ran = runs.train("run", {}, {"--resume", "auto"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_TRUE(has(ran.err, "no complete checkpoint to resume from: starting afresh")) << ran.err;
  ASSERT_EQ(runs.train("whole").status, 0);
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 12), checkpoint_path(runs.path("whole"), 12));
}

TEST(ResumeFolder, LinesBeyondTheCheckpointAreCut) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "6"}).status, 0);
  ASSERT_EQ(runs.train("whole").status, 0);
  {
    std::ofstream more(runs.path("run") + "/metrics.jsonl", std::ios::app);
    more << "{\"step\":7,\"loss\":1}\n{\"step\":8,\"eval\":true,\"eval_version\":8}\n{\"step\":9,\"lo";
  }
  ASSERT_EQ(runs.train("run", {}, {"--resume", "auto"}).status, 0);
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
  EXPECT_EQ(evaluated(runs.path("run")), evaluated(runs.path("whole")));
}

TEST(ResumeFolder, AfterAnOlderCheckpointTheLaterOnesGoWithTheNextSave) {
  const TinyRuns runs;
  const Keys keys = {{"checkpoint.every", "4"}, {"checkpoint.keep", "3"}, {"train.steps", "12"}};
  ASSERT_EQ(runs.train("run", keys).status, 0);
  EXPECT_EQ(names_in(runs.path("run") + "/checkpoints"),
            (std::vector<std::string>{"step-00000004", "step-00000008", "step-00000012"}));
  const Ran ran =
      runs.train("run", keys, {"--resume", checkpoint_path(runs.path("run"), 4), "--max-steps", "6"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(has(ran.err, "the checkpoints of later steps (12, 8) are left aside")) << ran.err;
  EXPECT_EQ(names_in(runs.path("run") + "/checkpoints"),
            (std::vector<std::string>{"step-00000004", "step-00000006"}));
  EXPECT_EQ(computed(runs.path("run")).size(), 6u);
  // Another run's checkpoints are never removed like that.
  ASSERT_EQ(runs.train("two", keys).status, 0);
  const Ran other = runs.train("two", keys, {"--resume", checkpoint_path(runs.path("run"), 4)});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(has(other.err, "holds checkpoints of later steps")) << other.err;
  EXPECT_EQ(names_in(runs.path("two") + "/checkpoints").size(), 3u);
}

TEST(ResumeFolder, ADryRunWritesNothing) {
  const TinyRuns runs;
  const Ran fresh = runs.train("run", {}, {"--dry-run"});
  EXPECT_EQ(fresh.status, 0) << fresh.err;
  EXPECT_FALSE(fs::exists(runs.path("run")));
  ASSERT_EQ(runs.train("run", {}, {"--max-steps", "3"}).status, 0);
  const std::string metrics = runs.path("run") + "/metrics.jsonl";
  std::ofstream(metrics, std::ios::app) << "{torn";
  const auto files = content_of(runs.path("run"));
  const Ran resumed = runs.train("run", {}, {"--dry-run", "--resume", "auto"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(has(resumed.err, "resuming from " + checkpoint_path(runs.path("run"), 3))) << resumed.err;
  EXPECT_EQ(content_of(runs.path("run")), files);
}

TEST(ResumeFolder, AFailureBeforeTheFirstStepLeavesNoUsedFolder) {
  const TinyRuns runs;
  ASSERT_EQ(runs.train("model", {}, {"--max-steps", "1"}).status, 0);
  const std::string model = checkpoint_path(runs.path("model"), 1), weights = model + "/model.safetensors";
  fs::rename(weights, weights + ".good");
  {
    std::ifstream in(weights + ".good", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    bytes[bytes.size() - 1] = '\x7f';  // a bf16 infinity or NaN
    bytes[bytes.size() - 2] = '\xff';
    std::ofstream(weights, std::ios::binary) << bytes;
  }
  const Keys keys = {{"model", "{\"path\": \"" + model + "\"}"}};
  const Ran broken = runs.train("run", keys);
  EXPECT_EQ(broken.status, 1) << broken.err;
  fs::rename(weights + ".good", weights);
  EXPECT_EQ(runs.train("run", keys).status, 0);
}

}  // namespace
}  // namespace tandem
