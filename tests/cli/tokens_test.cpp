// Token files of every format through the program.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/train_runs.h"
#include "tests/core/token_bytes.h"

namespace tandem {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The tokens of TinyRuns' train.bin in every format.
class TokensFormats : public ::testing::Test {
 protected:
  TokensFormats() {
    for (const char byte : runs_.folder().read("train.bin")) tokens_.push_back(static_cast<uint8_t>(byte));
    const auto count = static_cast<int32_t>(tokens_.size());
    const std::string narrow = words<uint16_t>(tokens_);
    runs_.folder().write("nanogpt", narrow);
    runs_.folder().write("llmc", llmc_header(20240520, 1, count) + narrow);
    runs_.folder().write("llmq", LlmqHeader{.count = count, .vocab = 256}.bytes() + words<int32_t>(tokens_));
    runs_.folder().write("corpus.bin", narrow);
    runs_.folder().write("corpus.idx", index({count - 7, 0, 7}));
  }
  static std::string index(const std::vector<int32_t>& lengths) {
    return MegatronIndex::of(lengths, 8, 2).bytes();
  }
  static Keys keys(const std::string& file, const std::string& format) {
    return {{"data.train", "\"" + file + "\""}, {"data.format", "\"" + format + "\""}, {"data.eval", "null"}};
  }
  /// llmq's file with a mask.
  void write_masked(const std::vector<bool>& mask) const {
    std::string bits((mask.size() + 7) / 8, '\0');
    for (size_t i = 0; i < mask.size(); ++i)
      if (mask[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << (i % 8));
    runs_.folder().write("masked",
                         LlmqHeader{.count = static_cast<int32_t>(tokens_.size()), .has_mask = 1}.bytes() +
                             words<int32_t>(tokens_) + bits);
  }
  const TinyRuns runs_;
  std::vector<int64_t> tokens_;
};

TEST_F(TokensFormats, TheSameTokensTrainTheSameFromEveryFormat) {
  const auto trained = [&](const std::string& run, const std::string& file, const std::string& format) {
    const Ran ran = runs_.train(run, keys(file, format), {"--max-steps", "4"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return computed(runs_.path(run));
  };
  const std::vector<std::string> expected = trained("bytes", "train.bin", "bytes");
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_EQ(trained("a", "nanogpt", "nanogpt"), expected);
  EXPECT_EQ(trained("b", "llmc", "auto"), expected);
  EXPECT_EQ(trained("c", "llmq", "auto"), expected);
  EXPECT_EQ(trained("d", "llmq", "llmq"), expected);
  EXPECT_EQ(trained("e", "corpus.bin", "auto"), expected);
  EXPECT_EQ(trained("f", "corpus.idx", "megatron"), expected);
  EXPECT_EQ(trained("g", "corpus", "auto"), expected);
}

TEST_F(TokensFormats, AResumedRunNoticesAChangedIndex) {
  ASSERT_EQ(runs_.train("run", keys("corpus", "auto"), {"--max-steps", "2"}).status, 0);
  const auto resume = [&] {
    return runs_.train("run", keys("corpus", "auto"), {"--max-steps", "3", "--resume", "auto"});
  };
  const std::string before = runs_.folder().read("corpus.idx");
  runs_.folder().write("corpus.idx", index({static_cast<int32_t>(tokens_.size())}));
  const Ran ran = resume();
  EXPECT_EQ(ran.status, 2) << ran.err;
  EXPECT_TRUE(has(ran.err, "the data file is not the one")) << ran.err;
  EXPECT_TRUE(has(ran.err, "corpus.idx")) << ran.err;
  runs_.folder().write("corpus.idx", before);
  EXPECT_EQ(resume().status, 0);
}

/// The evaluation of a masked file is the mean over its trained targets: two masks that share no token and
/// leave out none have together the loss of the whole.
TEST_F(TokensFormats, MaskedTokensCountNeitherInTheLossNorInTheTokens) {
  ASSERT_EQ(runs_.train("run", keys("llmq", "auto"), {"--max-steps", "2"}).status, 0);
  const auto evaluated = [&](const std::string& file) {
    const Ran ran =
        run_tandem({"eval", "--model", checkpoint_path(runs_.path("run"), 2), "--data", runs_.path(file),
                    "--format", "llmq", "--sequence-length", "16", "--dtype", "float32", "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    const json::Value root = json::parse(ran.out, "eval").root;
    return std::pair(*root.find("loss")->number(), *root.find("tokens")->number());
  };
  std::vector<bool> mask(tokens_.size()), rest(tokens_.size());
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 == 1, rest[i] = !mask[i];
  const auto [all_loss, all_tokens] = evaluated("llmq");
  write_masked(mask);
  const auto [some_loss, some_tokens] = evaluated("masked");
  write_masked(rest);
  const auto [rest_loss, rest_tokens] = evaluated("masked");
  const double targets = static_cast<double>((tokens_.size() - 1) / 16 * 16);
  EXPECT_EQ(all_tokens, targets);
  // Of the targets, tokens 1 to 16 * samples, every third from the first on.
  EXPECT_EQ(some_tokens, std::ceil(targets / 3));
  EXPECT_EQ(some_tokens + rest_tokens, all_tokens);
  EXPECT_NE(some_loss, rest_loss);
  EXPECT_NEAR(some_loss * some_tokens + rest_loss * rest_tokens, all_loss * all_tokens, 1e-5 * all_tokens);
}

TEST_F(TokensFormats, MasksThatLeaveNothingToTrainOnAreRefusedBeforeARunBegins) {
  std::vector<bool> mask(tokens_.size());
  mask[0] = true;  // never a target
  write_masked(mask);
  const Ran ran = runs_.train("run", keys("masked", "auto"));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(has(ran.err, "the masks take every target")) << ran.err;
  EXPECT_TRUE(has(ran.err, runs_.path("masked"))) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(runs_.path("run")));
  mask[5] = true;
  write_masked(mask);
  EXPECT_EQ(runs_.train("run", keys("masked", "auto"), {"--max-steps", "5"}).status, 0);
}

}  // namespace
}  // namespace tandem
