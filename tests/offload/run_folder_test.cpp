#include "offload/run_folder.h"

#include <gtest/gtest.h>

#include "tests/core/expect_error.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

/// A run folder with checkpoints that are complete as far as pruning looks: they have a state.json.
class CheckpointFolder : public testing::Test {
 protected:
  void save(int64_t step, bool complete = true) {
    fs::create_directories(run_.checkpoint(step) / "optimizer");
    if (complete) std::ofstream(run_.checkpoint(step) / "state.json") << "{}";
  }
  TemporaryFolder folder_;
  RunFolder run_{folder_.path()};
};

using Steps = std::vector<int64_t>;

TEST_F(CheckpointFolder, NamesAndListsSteps) {
  EXPECT_EQ(run_.checkpoint(100).filename(), "step-00000100");
  EXPECT_EQ(run_.checkpoint(1234567890).filename(), "step-1234567890");
  EXPECT_EQ(run_.saved_steps(), Steps{});
  for (const int64_t step : {20, 3, 1234567890}) save(step);
  for (const char* other :
       {"step-", "step-7x", "step", "best", ".step-00000009.partial", "step-99999999999999999999"})
    fs::create_directories(run_.checkpoints() / other);
  EXPECT_EQ(run_.saved_steps(), (Steps{1234567890, 20, 3}));
}

TEST_F(CheckpointFolder, IsUsedOnceARunHasStarted) {
  EXPECT_FALSE(run_.used());
  fs::create_directories(run_.checkpoints());
  const RunLock lock(run_.lock());
  EXPECT_FALSE(run_.used()) << "a start that failed leaves these";
  save(1, false);
  EXPECT_TRUE(run_.used());
  fs::remove_all(run_.checkpoint(1));
  std::ofstream(run_.metrics()) << "";
  EXPECT_TRUE(run_.used());
}

TEST_F(CheckpointFolder, OneLockAtATime) {
  {
    const RunLock lock(run_.lock());
    expect_error(Status::failed, {"another process trains in this run folder", "run.lock"},
                 [&] { const RunLock second(run_.lock()); });
  }
  const RunLock again(run_.lock());
}

TEST_F(CheckpointFolder, KeepsTheNewestCompleteOnes) {
  for (const int64_t step : {10, 20, 40}) save(step);
  save(5, false);
  save(30, false);
  run_.prune(2, {});
  EXPECT_EQ(run_.saved_steps(), (Steps{40, 30, 20})) << "an incomplete one does not count";
  run_.prune(1, {});
  EXPECT_EQ(run_.saved_steps(), Steps{40});
}

TEST_F(CheckpointFolder, TheBestIsACompleteOneWithTheLowestLoss) {
  for (const int64_t step : {10, 20, 30, 40}) save(step);
  save(50, false);
  const std::map<int64_t, double> losses{{5, 0.5}, {10, 3.0}, {20, 2.0}, {30, 2.0}, {50, 1.0}};
  EXPECT_EQ(run_.best_step(losses), 30) << "of equal ones the newest; 5 is not there, 50 not complete";
  EXPECT_EQ(run_.best_step({}), std::nullopt);
  run_.prune(1, {}, 20);
  EXPECT_EQ(run_.saved_steps(), (Steps{50, 40, 20}));
  run_.prune(1, Steps{20}, 20);
  EXPECT_EQ(run_.saved_steps(), (Steps{50, 40})) << "an abandoned one goes, the best or not";
}

TEST_F(CheckpointFolder, RemovesWhatIsAbandonedAndWhatKilledSavesLeft) {
  for (const int64_t step : {10, 12, 20, 30}) save(step);
  fs::create_directories(partial_of(run_.checkpoint(15)) / "optimizer");
  fs::create_directories(run_.checkpoints() / ".cache");
  std::ofstream(run_.checkpoints() / ".gitattributes") << "not ours";
  run_.prune(5, Steps{20, 30});
  EXPECT_EQ(run_.saved_steps(), (Steps{12, 10}));
  EXPECT_FALSE(fs::exists(partial_of(run_.checkpoint(15))));
  EXPECT_TRUE(fs::exists(run_.checkpoints() / ".cache"));
  EXPECT_TRUE(fs::exists(run_.checkpoints() / ".gitattributes"));
}

class ResumeMetrics : public testing::Test {
 protected:
  /// What is left of the text, and which evaluation was found.
  std::pair<std::string, std::optional<int64_t>> cut(const std::string& text, int64_t step) {
    folder_.write("metrics.jsonl", text);
    const KeptMetrics kept = RunFolder(folder_.path()).cut_metrics(step);
    return {folder_.read("metrics.jsonl"), kept.evaluated};
  }
  TemporaryFolder folder_;
};

const std::string kOne = "{\"step\":1,\"loss\":5.5}\n", kTwo = "{\"step\":2,\"loss\":5.25}\n",
                  kTwoEvaluated = "{\"step\":2,\"eval\":true,\"eval_version\":1}\n",
                  kThree = "{\"step\":3,\"loss\":5.0}\n";

using Cut = std::pair<std::string, std::optional<int64_t>>;

TEST_F(ResumeMetrics, LinesUpToTheStepStay) {
  EXPECT_EQ(cut(kOne + kTwo + kThree, 3), Cut(kOne + kTwo + kThree, std::nullopt));
  EXPECT_EQ(cut(kOne + kTwo + kThree, 2), Cut(kOne + kTwo, std::nullopt));
  EXPECT_EQ(cut(kOne + kTwo + kThree, 0), Cut("", std::nullopt));
  EXPECT_EQ(cut("", 2), Cut("", std::nullopt));
}

TEST_F(ResumeMetrics, AnEvaluationMayStandBeforeItsStep) {
  EXPECT_EQ(cut(kOne + kTwoEvaluated + kTwo + kThree, 2), Cut(kOne + kTwoEvaluated + kTwo, 1));
  EXPECT_EQ(cut(kOne + kTwoEvaluated + kTwo + kThree, 1), Cut(kOne, std::nullopt));
  EXPECT_EQ(cut(kOne + kTwoEvaluated + kTwo + kThree, 3),
            Cut(kOne + kTwoEvaluated + kTwo + kThree, std::nullopt));
}

TEST_F(ResumeMetrics, TornAndStrangeLinesGoWithAllThatFollows) {
  EXPECT_EQ(cut(kOne + kTwo.substr(0, 9), 5), Cut(kOne, std::nullopt));
  EXPECT_EQ(cut(kOne + kTwo.substr(0, kTwo.size() - 1), 5), Cut(kOne, std::nullopt)) << "no end of line";
  EXPECT_EQ(cut(kOne + std::string(20, '\0') + "\n" + kTwo, 5), Cut(kOne, std::nullopt));
  EXPECT_EQ(cut(kOne + "{\"loss\":1}\n" + kTwo, 5), Cut(kOne, std::nullopt));
}

TEST_F(ResumeMetrics, GivesTheEvalLossesThatAreNumbers) {
  const auto line = [](int step, const char* loss) {
    return fmt::format("{{\"step\":{},\"eval\":true,\"eval_loss\":{},\"eval_version\":1}}\n", step, loss);
  };
  folder_.write("metrics.jsonl", line(10, "5.5") + line(20, "null") + line(30, "4.5") + line(40, "4"));
  EXPECT_EQ(RunFolder(folder_.path()).cut_metrics(30).eval_losses,
            (std::map<int64_t, double>{{10, 5.5}, {30, 4.5}}));
}

TEST_F(ResumeMetrics, WithoutAFileThereIsNothingToCut) {
  EXPECT_EQ(RunFolder(folder_.path()).cut_metrics(3).evaluated, std::nullopt);
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST(CheckpointDisk, IsAskedWhereTheFolderWillLie) {
  const TemporaryFolder folder;
  const auto near = [](uint64_t a, uint64_t b) { return std::max(a, b) - std::min(a, b) < (1u << 30); };
  const uint64_t free = fs::space(folder.path()).available;
  EXPECT_TRUE(near(free_disk_bytes(folder.path()), free));
  EXPECT_TRUE(near(free_disk_bytes(folder.path("a/b/c")), free)) << "others may write meanwhile";
  EXPECT_TRUE(near(free_disk_bytes("/proc/self/not/there"), fs::space("/proc").available));
}

}  // namespace
}  // namespace tandem
