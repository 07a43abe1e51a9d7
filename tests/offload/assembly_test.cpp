// From a config to data, machine and steps.
#include "offload/assembly.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/expect_error.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

constexpr const char* kText = R"({
  "output_dir": "out", "train_batch_size": 4, "optimizer": {"params": {"lr": 1e-3}},
  "model": {"config": {"model_type": "llama", "vocab_size": 256, "max_position_embeddings": 64}},
  "data": {"train": "train.bin", "format": "bytes", "sequence_length": 10},
  "train": {"steps": 10}
})";

class ConfigAssembly : public ::testing::Test {
 protected:
  ConfigAssembly() {
    folder_.write("train.bin", std::string(211, 'a'));  // 21 samples of 10 tokens
    folder_.write("eval.bin", std::string(71, 'b'));    // 7
    arch_.vocab = 256;
    arch_.max_positions = 64;
  }
  [[nodiscard]] Config config(const std::vector<std::string>& sets = {}) const {
    return config_from_text(kText, "c.json", folder_.path(), sets);
  }
  TemporaryFolder folder_;
  Arch arch_;
};

TEST_F(ConfigAssembly, TokensBecomeWholeSamplesAtLeastOne) {
  EXPECT_EQ(first_tokens({3, 100}, 50, 10).begin, 3u);
  EXPECT_EQ(first_tokens({3, 100}, 50, 10).count, 5u);
  EXPECT_EQ(first_tokens({3, 100}, 59, 10).count, 5u);
  EXPECT_EQ(first_tokens({3, 100}, 5, 10).count, 1u);
  EXPECT_EQ(first_tokens({3, 100}, 100000, 10).count, 100u);
}

TEST_F(ConfigAssembly, EvaluationHasItsOwnFilesOrTheLastShare) {
  const DataSets split = open_data(config({"data.eval_split=0.2"}), arch_);
  EXPECT_EQ(split.train_range.count, 17u);  // 0.2 * 21 = 4.2: four samples
  EXPECT_EQ(split.eval_range.begin, 17u);
  EXPECT_EQ(split.eval_range.count, 4u);
  const DataSets own = open_data(config({"data.eval=eval.bin", "train.eval_tokens=30"}), arch_);
  EXPECT_EQ(own.train_range.count, 21u);
  EXPECT_EQ(own.eval_range.count, 3u);
  EXPECT_EQ(&own.eval_set(), own.eval.get());
  EXPECT_EQ(open_data(config(), arch_).eval_range.count, 0u);
  const DataSets alone = open_eval_data(config({"data.eval=eval.bin", "data.train=absent.bin"}), arch_);
  EXPECT_EQ(alone.train, nullptr);
  EXPECT_EQ(alone.eval_range.count, 7u);
}

TEST_F(ConfigAssembly, EpochsBecomeStepsRoundedUp) {
  const DataSets data = open_data(config(), arch_);
  const auto steps = [&](const char* epochs) {
    Config c = config();
    c.train.steps.reset();
    c.train.epochs = std::stod(epochs);
    return run_steps(c, data);
  };
  EXPECT_EQ(run_steps(config(), data), 10);
  EXPECT_EQ(steps("1"), 6);  // 21 samples, 4 a step
  EXPECT_EQ(steps("2"), 11);
  EXPECT_EQ(steps("0.001"), 1);
}

TEST_F(ConfigAssembly, TheDeviceMayTakeWhatIsFreeLessTheReserve) {
  Config c = config({"device.kind=host", "device.reserve=1GiB", "device.threads=1"});
  const Machine free = find_machine(c.device, "");
  const size_t usable = free.limits.resident_bytes();
  EXPECT_EQ(free.device_limit, usable > (size_t{1} << 30) ? usable - (size_t{1} << 30) : 0);
  c.device.memory_limit = 12345;
  EXPECT_EQ(find_machine(c.device, "").device_limit, 12345u) << "a given limit is not reduced";
  c.device.memory_limit.reset();
  c.device.reserve = uint64_t{1} << 60;
  EXPECT_EQ(find_machine(c.device, "").device_limit, 0u);
}

TEST_F(ConfigAssembly, TokensOutsideTheVocabularyAreFoundWhenTheFilesAreOpened) {
  std::string text(211, 'a');
  text[200] = 'z';
  folder_.write("train.bin", text);
  arch_.vocab = 'z';
  expect_error(Status::failed, {"token 122 at byte 200", "train.bin"},
               [&] { (void)open_data(config(), arch_); });
  arch_.vocab = 'z' + 1;
  EXPECT_EQ(open_data(config(), arch_).train_range.count, 21u);
}

TEST_F(ConfigAssembly, NamesAreCheckedUnderTheKeysAskedFor) {
  const Config c = config({"data.eval=gone.bin"});
  constexpr std::string_view kTrain[] = {"data.train", "model.path", "model.config", "model.tokenizer"};
  check_names(c, kTrain);
  constexpr std::string_view kEval[] = {"data.eval"};
  try {
    check_names(c, kEval);
    FAIL() << "no error";
  } catch (const ErrorList& list) {
    ASSERT_EQ(list.errors().size(), 1u);
    EXPECT_EQ(list.status(), Status::usage);
    EXPECT_EQ(list.errors()[0].message(),
              "data.eval names \"" + folder_.path("gone.bin") + "\", which does not exist");
    EXPECT_EQ(list.errors()[0].where(), "--set data.eval");
  }
}

}  // namespace
}  // namespace tandem
