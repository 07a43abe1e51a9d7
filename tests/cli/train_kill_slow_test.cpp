// Saves that are killed, refused by the disk, or robbed of their folder: one complete checkpoint is always
// there.
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::vector<std::string> train_arguments(const std::string& config) {
  return {"train", config, "--resume", "auto", "--quiet"};
}

/// Names of complete checkpoints of a run.
std::vector<std::string> complete_in(const std::string& run) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(run + "/checkpoints"))
    if (name.starts_with("step-") && is_complete(run + "/checkpoints/" + name)) names.push_back(name);
  return names;
}

/// Starts the run over and over, each time killed, and lets it finish at last.
/// act: waits for a moment of the run and kills it.
void finish_through(const TinyRuns& runs, const Keys& keys, int kills,
                    const std::function<void(pid_t, int)>& act) {
  const std::string run = runs.path("run"), config = runs.config("run", keys);
  bool saved = false;
  int killed = 0;
  for (int round = 0; round < kills; ++round) {
    const Ran ran = run_watched(train_arguments(config), [&](pid_t process) { act(process, round); });
    ASSERT_TRUE(ran.status == 0 || ran.status == 128 + SIGKILL) << ran.status << ran.err;
    killed += ran.status == 0 ? 0 : 1;
    const auto complete = complete_in(run);
    EXPECT_TRUE(!saved || !complete.empty()) << "round " << round;
    saved = saved || !complete.empty();
    for (const std::string& name : names_in(run + "/checkpoints"))
      EXPECT_TRUE(name.starts_with(".") || is_complete(run + "/checkpoints/" + name)) << name;
  }
  EXPECT_GE(killed, kills / 4) << "too few met the run at work";
  ASSERT_EQ(run_tandem(train_arguments(config)).status, 0);
}

TEST(ResumeKill, AtAnyMomentOfSavesThatKeepOne) {
  const TinyRuns runs;
  const Keys keys = {{"checkpoint.every", "1"},
                     {"checkpoint.keep", "1"},
                     {"train.steps", "25"},
                     {"train.eval_every", "2"},
                     {"zero_optimization.offload_optimizer.schedule", "\"delayed\""}};
  ASSERT_EQ(runs.train("whole", keys).status, 0);
  uint32_t random = 7;
  finish_through(runs, keys, 16, [&](pid_t process, int) {
    wait_for(process, [&] { return fs::exists(runs.path("run") + "/run.lock"); });
    random = random * 1664525u + 1013904223u;
    usleep((random >> 16) % 60000);
    kill(process, SIGKILL);
  });
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 25), checkpoint_path(runs.path("whole"), 25));
  EXPECT_EQ(computed(runs.path("run")), computed(runs.path("whole")));
  EXPECT_EQ(evaluated(runs.path("run")), evaluated(runs.path("whole")));
  EXPECT_EQ(names_in(runs.path("run") + "/checkpoints"), std::vector<std::string>{"step-00000025"});
  EXPECT_TRUE(litter_in(runs.path("run")).empty());
}

TEST(ResumeKill, WhileEachOfTheFilesIsThere) {
  const TinyRuns runs;
  const Keys keys = {{"checkpoint.every", "1"}, {"checkpoint.keep", "1"}, {"train.steps", "20"}};
  ASSERT_EQ(runs.train("whole", keys).status, 0);
  const std::vector<std::string> files = {"optimizer/.master.safetensors.tmp",
                                          "optimizer/exp_avg.safetensors",
                                          "optimizer/exp_avg_sq.safetensors",
                                          ".model.safetensors.tmp",
                                          "config.json",
                                          "state.json"};
  finish_through(runs, keys, static_cast<int>(files.size()), [&](pid_t process, int round) {
    const std::string folder = runs.path("run") + "/checkpoints";
    wait_for(process, [&] {
      for (const std::string& name : names_in(folder))
        if (name.ends_with(".partial") &&
            fs::exists(folder + "/" + name + "/" + files[static_cast<size_t>(round)]))
          return true;
      return false;
    });
    kill(process, SIGKILL);
  });
  expect_same_checkpoint(checkpoint_path(runs.path("run"), 20), checkpoint_path(runs.path("whole"), 20));
  EXPECT_TRUE(litter_in(runs.path("run")).empty());
}

/// What every refused save leaves: status 1, the reason, the path of the last good checkpoint, nothing else.
void expect_refused_save(const Ran& ran, const std::string& run, const char* reason) {
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_TRUE(has(ran.err, reason)) << ran.err;
  EXPECT_TRUE(has(ran.err, "  at: " + run)) << ran.err;
  EXPECT_TRUE(has(ran.err, "  try: ")) << ran.err;
  const auto complete = complete_in(run);
  ASSERT_FALSE(complete.empty());
  EXPECT_EQ(names_in(run + "/checkpoints"), complete);
  EXPECT_TRUE(has(ran.err, "the newest complete checkpoint is " + run + "/checkpoints/" + complete.back()))
      << ran.err;
}

TEST(ResumeDisk, AFileSizeLimitStopsTheSaveAndNamesTheBytes) {
  const TinyRuns runs;
  const std::string run = runs.path("run");
  const Keys keys = {{"checkpoint.every", "2"}, {"train.steps", "400"}};
  // The limit comes when the first checkpoint is there; masters are the first file to pass it.
  const Ran ran = run_watched(train_arguments(runs.config("run", keys)), [&](pid_t process) {
    wait_for(process, [&] { return !complete_in(run).empty(); });
    const rlimit limit{100000, 100000};
    prlimit(process, RLIMIT_FSIZE, &limit, nullptr);
  });
  expect_refused_save(ran, run, "optimizer/master.safetensors");
  EXPECT_TRUE(has(ran.err, "109184 bytes needed")) << ran.err;
  ASSERT_EQ(runs.train("run", keys, {"--resume", "auto", "--max-steps", "60"}).status, 0);
  ASSERT_EQ(runs.train("whole", keys, {"--max-steps", "60"}).status, 0);
  expect_same_checkpoint(checkpoint_path(run, 60), checkpoint_path(runs.path("whole"), 60));
  EXPECT_TRUE(litter_in(run).empty());
}

/// A disk of its own, where this process may mount one.
class Disk {
 public:
  Disk(std::string path, const char* size) : path_(std::move(path)) {
    fs::create_directory(path_);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, (std::string("size=") + size).c_str()) == 0;
  }
  ~Disk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }
  void set_read_only() const {
    ASSERT_EQ(mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST(ResumeDisk, AFullOneKeepsTheOlderCheckpoint) {
  const TinyRuns runs;
  // A save needs about 380 KB: one fits, the second does not beside it, as the warning at the start says.
  const Disk disk(runs.path("disk"), "600k");
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  const Keys keys = {{"checkpoint.every", "2"}, {"output_dir", '"' + runs.path("disk/run") + '"'}};
  const Ran ran = run_tandem({"train", runs.config("run", keys)});
  expect_refused_save(ran, runs.path("disk/run"), "bytes needed");
  EXPECT_TRUE(has(ran.err, "warning: 3 more checkpoints need")) << ran.err;
  EXPECT_EQ(complete_in(runs.path("disk/run")), std::vector<std::string>{"step-00000002"});
}

TEST(ResumeDisk, OneThatIsTooSmallIsSeenBeforeTheStart) {
  const TinyRuns runs;
  const Disk disk(runs.path("disk"), "200k");
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  const Keys keys = {{"output_dir", '"' + runs.path("disk/run") + '"'}};
  const std::string config = runs.config("run", keys);
  for (const std::vector<std::string>& options : {std::vector<std::string>{}, {"--dry-run"}}) {
    std::vector<std::string> arguments{"train", config};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Ran ran = run_tandem(arguments);
    EXPECT_EQ(ran.status, 3) << ran.err;
    // 26784 parameters: three fp32 planes and the bf16 weights.
    EXPECT_TRUE(has(ran.err, fmt::format("({} bytes)", 26784 * 14))) << ran.err;
    EXPECT_TRUE(has(ran.err, "204800 bytes")) << ran.err;
    EXPECT_FALSE(fs::exists(runs.path("disk/run")));
  }
}

TEST(ResumeDisk, AReadOnlyOneIsSaidAndHarmsNothing) {
  const TinyRuns runs;
  const Disk disk(runs.path("disk"), "4m");
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  const std::string run = runs.path("disk/run");
  const std::string config = runs.config("run", {{"output_dir", '"' + run + '"'}});
  ASSERT_EQ(run_tandem({"train", config, "--max-steps", "4"}).status, 0);
  const auto before = content_of(run);
  disk.set_read_only();
  for (const char* resume : {"auto", "/4"}) {
    const Ran ran =
        run_tandem({"train", config, "--resume", resume[0] == '/' ? checkpoint_path(run, 4) : resume});
    EXPECT_EQ(ran.status, 1);
    EXPECT_TRUE(has(ran.err, "Read-only file system")) << ran.err;
  }
  EXPECT_EQ(content_of(run), before);
}

TEST(ResumeDisk, AFolderWithoutRightsIsSaid) {
  const TinyRuns runs;
  fs::permissions(runs.path(""), fs::perms::all);
  fs::create_directory(runs.path("closed"));
  fs::permissions(runs.path("closed"), fs::perms::owner_read | fs::perms::owner_exec |
                                           fs::perms::others_read | fs::perms::others_exec);
  const std::string config = runs.config("run", {{"output_dir", '"' + runs.path("closed/run") + '"'}});
  const Ran ran = run_tandem({"train", config}, [] {
    if (geteuid() != 0) return;
    (void)!setgroups(0, nullptr);
    (void)!setgid(65534);
    (void)!setuid(65534);
  });
  if (ran.status == 127) GTEST_SKIP() << "nobody can't run the program here";
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(has(ran.err, "create the run folder: Permission denied")) << ran.err;
  EXPECT_TRUE(has(ran.err, "  at: " + runs.path("closed/run"))) << ran.err;
}

TEST(ResumeDisk, AFolderThatVanishesIsMadeAgainForTheSave) {
  const TinyRuns runs;
  const Keys keys = {{"train.steps", "1000"}, {"data.eval", "null"}};
  const std::string run = runs.path("run");
  const Ran ran = run_watched({"train", runs.config("run", keys)}, [&](pid_t process) {
    if (!wait_for(process, [&] { return count_lines(run + "/metrics.jsonl") >= 3; })) return;
    fs::rename(run, runs.path("gone"));
    kill(process, SIGTERM);
  });
  EXPECT_TRUE(ran.status == 143 || ran.status == 0) << ran.err;
  EXPECT_EQ(complete_in(run).size(), 1u) << ran.err;
}

TEST(ResumeDisk, AFileInTheFoldersPlaceIsAnErrorOfTheSave) {
  const TinyRuns runs;
  const Keys keys = {{"train.steps", "1000"}, {"data.eval", "null"}};
  const std::string run = runs.path("run");
  const Ran ran = run_watched({"train", runs.config("run", keys)}, [&](pid_t process) {
    if (!wait_for(process, [&] { return count_lines(run + "/metrics.jsonl") >= 3; })) return;
    fs::rename(run, runs.path("gone"));
    runs.folder().write("run", "not a folder");
    kill(process, SIGTERM);
  });
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_TRUE(has(ran.err, "error: cannot create the folder")) << ran.err;
  EXPECT_EQ(runs.folder().read("run"), "not a folder");
}

}  // namespace
}  // namespace tandem
