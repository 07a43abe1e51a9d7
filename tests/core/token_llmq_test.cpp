#include <gtest/gtest.h>

#include "core/data/data_loader.h"
#include "tests/core/expect_error.h"
#include "tests/core/token_bytes.h"

namespace tandem {
namespace {

constexpr auto kAuto = TokenFormat::automatic;

TEST(TokensLlmq, BothVersionsAreRead) {
  const TemporaryFolder folder;
  const std::string tokens = words<int32_t>({151643, 0, 7});
  for (const LlmqHeader& header :
       {LlmqHeader{.version = 1, .count = 3}, LlmqHeader{.version = 2, .count = 3, .vocab = 151643}})
    for (const auto format : {kAuto, TokenFormat::llmq})
      EXPECT_EQ(read_all(TokenFile(folder.write("a", header.bytes() + tokens), format, 151936)),
                (std::vector<int32_t>{151643, 0, 7}));
}

TEST(TokensLlmq, HeadersThatAreNotReadAreRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    expect_error(Status::failed, parts, [&] { TokenFile(folder.write("a", bytes), kAuto, 100); });
  };
  const std::string two = words<int32_t>({1, 2});
  refused(LlmqHeader{.version = 3, .count = 2}.bytes() + two,
          {"version 3 of the llmq token format; 1 and 2"});
  refused(LlmqHeader{.token_bytes = 2, .count = 2}.bytes() + two, {"2 bytes per token; llmq writes 4"});
  refused(LlmqHeader{.count = -1}.bytes(), {"counts -1 tokens", "split"});
  refused(LlmqHeader{.count = INT32_MAX}.bytes() + two,
          {"counts 2147483647 tokens", "should have 8589935612 bytes, but has 1032", "cut off"});
  refused(LlmqHeader{.count = 2}.bytes() + two + "x", {"should have 1032 bytes, but has 1033"});
  refused(LlmqHeader{.count = 2, .has_mask = 1}.bytes() + two,
          {"and a mask of one bit each", "should have 1033 bytes, but has 1032"});
  refused("BIN.TOK\n", {"8 bytes, but the header of an llmq token file alone has 1024"});
  refused(LlmqHeader{.count = 2, .vocab = 101}.bytes() + two, {"vocabulary of 101", "the model's 100"});
  expect_error(Status::failed, {"no llmq token file, but a token file of llm.c"},
               [&] { TokenFile(folder.write("a", llmc_header(20240520, 1, 0)), TokenFormat::llmq, 100); });
  expect_error(Status::failed, {"no llmq token file: it does not begin with BIN.TOK"},
               [&] { TokenFile(folder.write("a", "abcd"), TokenFormat::llmq, 100); });
}

TEST(TokensLlmq, IdsOutsideTheVocabularyAreNamed) {
  const TemporaryFolder folder;
  const TokenFile file(folder.write("a", LlmqHeader{.count = 3}.bytes() + words<int32_t>({1, 100, -5})),
                       kAuto, 100);
  std::vector<int32_t> one(1);
  expect_error(Status::failed, {"token 100 at byte 1028 (token number 1)"}, [&] { file.read(1, one); });
  expect_error(Status::failed, {"token -5 at byte 1032 (token number 2) is negative"},
               [&] { file.read(2, one); });
}

/// As np.packbits(mask, bitorder="little") writes it.
std::string packed(const std::vector<int>& mask) {
  std::string bytes((mask.size() + 7) / 8, '\0');
  for (size_t i = 0; i < mask.size(); ++i)
    bytes[i / 8] = static_cast<char>(bytes[i / 8] | mask[i] << (i % 8));
  return bytes;
}

/// 19 tokens 0, 1, ...; sample length 6: samples 0 to 2.
SampleSet masked(const TemporaryFolder& folder, const std::vector<int>& mask) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 19; ++i) tokens.push_back(i);
  std::vector<TokenFile> files;
  files.emplace_back(folder.write("a", LlmqHeader{.count = 19, .has_mask = 1}.bytes() +
                                           words<int32_t>(tokens) + packed(mask)),
                     kAuto, 100);
  return SampleSet(std::move(files), 6);
}

TEST(TokensLlmq, AMaskedTokenIsReadButIsNoTarget) {
  const TemporaryFolder folder;
  std::vector<int> mask(19);
  for (const size_t trained : {0, 1, 6, 7, 8, 12, 15, 16, 18}) mask[trained] = 1;
  const SampleSet set = masked(folder, mask);
  const DataLoader loader(set, {0, 3}, std::nullopt);
  std::vector<int32_t> tokens(18), targets(18);
  loader.fill(0, Tensor(tokens.data(), DType::i32, {3, 6}), Tensor(targets.data(), DType::i32, {3, 6}));
  for (int32_t i = 0; i < 18; ++i) {
    EXPECT_EQ(tokens[static_cast<size_t>(i)], i);
    EXPECT_EQ(targets[static_cast<size_t>(i)], mask[static_cast<size_t>(i) + 1] == 1 ? i + 1 : -100) << i;
  }
}

TEST(TokensLlmq, SamplesWithoutATargetAreFoundBeforeTheRun) {
  const TemporaryFolder folder;
  std::vector<int> mask(19);
  mask[0] = 1;  // never a target
  mask[13] = 1;
  const SampleSet set = masked(folder, mask);
  check_targets(set, {0, 3});
  check_targets(set, {2, 1});
  expect_error(Status::failed, {"the masks take every target of 2 sample(s) out of training", "/a"}, [&] {
    check_targets(set, {0, 2});
  });
}

}  // namespace
}  // namespace tandem
