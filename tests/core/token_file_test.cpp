#include "core/data/token_file.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/core/expect_error.h"
#include "tests/core/token_bytes.h"

namespace tandem {
namespace {

constexpr auto kAuto = TokenFormat::automatic;

TEST(Tokens, ReadsLlmcOfGpt2AndLlama3ByMagic) {
  const TemporaryFolder folder;
  const TokenFile gpt2(folder.write("a", llmc_header(20240520, 1, 3) + words<uint16_t>({50256, 0, 65535})),
                       kAuto, 65536);
  EXPECT_EQ(read_all(gpt2), (std::vector<int32_t>{50256, 0, 65535}));
  const TokenFile llama3(folder.write("b", llmc_header(20240801, 7, 2) + words<uint32_t>({128000, 7})),
                         TokenFormat::llmc, 128256);
  EXPECT_EQ(read_all(llama3), (std::vector<int32_t>{128000, 7}));
}

TEST(Tokens, ReadsNanogptAndBytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.bin", std::string("\x01\x02\xff\x00", 4));
  EXPECT_EQ(read_all(TokenFile(path, TokenFormat::nanogpt, 50304)), (std::vector<int32_t>{0x201, 0xff}));
  EXPECT_EQ(read_all(TokenFile(path, TokenFormat::bytes, 256)), (std::vector<int32_t>{1, 2, 255, 0}));
}

TEST(Tokens, ReadsOnlyTheWindowAsked) {
  const TemporaryFolder folder;
  const TokenFile file(
      folder.write("a", llmc_header(20240520, 1, 5) + words<uint16_t>({900, 11, 12, 13, 900})), kAuto, 100);
  std::vector<int32_t> window(3);
  file.read(1, window);  // the ids on both sides are above vocab
  EXPECT_EQ(window, (std::vector<int32_t>{11, 12, 13}));
}

TEST(Tokens, IdAtOrAboveVocabNamesFileOffsetAndId) {
  const TemporaryFolder folder;
  const TokenFile llmc(folder.write("a", llmc_header(20240520, 1, 3) + words<uint16_t>({99, 98, 100})), kAuto,
                       100);
  expect_error(Status::failed,
               {"token 100 at byte 1028 (token number 2)", "vocabulary of 100", folder.path("a").c_str()},
               [&] { read_all(llmc); });
  const TokenFile bytes(folder.write("b", "ab\xff"), TokenFormat::bytes, 250);
  expect_error(Status::failed, {"token 255 at byte 2"}, [&] { read_all(bytes); });
  const TokenFile wide(folder.write("c", llmc_header(20240801, 7, 1) + words<uint32_t>({0xffffffff})), kAuto,
                       128256);
  expect_error(Status::failed, {"token 4294967295 at byte 1024"}, [&] { read_all(wide); });
}

TEST(Tokens, Uint16ForALargeVocabularyIsRefused) {
  const TemporaryFolder folder;
  const std::string llmc = folder.write("a", llmc_header(20240520, 1, 1) + words<uint16_t>({1}));
  const std::string bare = folder.write("b", words<uint16_t>({1}));
  EXPECT_EQ(TokenFile(llmc, kAuto, 65536).tokens(), 1u);
  for (const auto& [path, format] : {std::pair(llmc, kAuto), std::pair(bare, TokenFormat::nanogpt)})
    expect_error(Status::failed, {"uint16", "65537 (above 65536)"},
                 [&, p = path, f = format] { TokenFile(p, f, 65537); });
}

TEST(Tokens, OddLengthTruncationAndCountMismatchAreNamed) {
  const TemporaryFolder folder;
  const std::string good = llmc_header(20240520, 1, 3) + words<uint16_t>({1, 2, 3});
  expect_error(Status::failed, {"7 bytes are no whole number of uint16 tokens", "cut off"},
               [&] { TokenFile(folder.write("a", "1234567"), TokenFormat::nanogpt, 50304); });
  expect_error(Status::failed,
               {"counts 3 tokens of 2 bytes", "should have 1030 bytes, but has 1029", "cut off"},
               [&] { TokenFile(folder.write("a", good.substr(0, 1029)), kAuto, 100); });
  expect_error(Status::failed, {"should have 1030 bytes, but has 1031"},
               [&] { TokenFile(folder.write("a", good + "x"), kAuto, 100); });
  expect_error(Status::failed, {"1023 bytes, but the header of an llm.c token file alone has 1024"},
               [&] { TokenFile(folder.write("a", good.substr(0, 1023)), kAuto, 100); });
  expect_error(Status::failed, {"counts -2147483648 tokens", "split"},
               [&] { TokenFile(folder.write("a", llmc_header(20240520, 1, INT32_MIN)), kAuto, 100); });
  expect_error(Status::failed, {"version 2", "magic 20240520 goes with version 1"},
               [&] { TokenFile(folder.write("a", llmc_header(20240520, 2, 0)), kAuto, 100); });
  expect_error(Status::failed, {"empty"}, [&] { TokenFile(folder.write("a", ""), TokenFormat::bytes, 256); });
}

TEST(Tokens, WhatIsNoTokenFileIsCalledByItsName) {
  const TemporaryFolder folder;
  const auto opened = [&](const std::string& bytes, const char* said) {
    expect_error(Status::failed, {said}, [&] { TokenFile(folder.write("data", bytes), kAuto, 100); });
  };
  opened(bytes_of(int32_t{20240326}) + std::string(1020, '\0'), "a model file of llm.c");
  opened(bytes_of(int32_t{20240522}) + std::string(1020, '\0'), "evaluation file of llm.c");
  opened("version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer");
  opened("<!DOCTYPE html><html>", "HTML page");
  opened("\x1f\x8b\x08 compressed", "gzip");
  opened("plain words without any magic", "set data.format to \"nanogpt\"");
  for (const std::string& bytes : {llmc_header(20240520, 1, 0), LlmqHeader{}.bytes()})
    expect_error(Status::failed, {"named nanogpt, but is a token file of llm", "\"auto\""},
                 [&] { TokenFile(folder.write("data", bytes), TokenFormat::nanogpt, 100); });
  expect_error(Status::failed, {"no llm.c token file, but a token file of llmq"},
               [&] { TokenFile(folder.write("data", LlmqHeader{}.bytes()), TokenFormat::llmc, 100); });
  expect_error(Status::failed, {"begins with 1684234849, not 20240520 or 20240801"},
               [&] { TokenFile(folder.write("data", "abcd"), TokenFormat::llmc, 100); });
}

TEST(Tokens, PathsThatAreNoFilesAreExplained) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("gone", folder.path("link"));
  const auto opens = [](const std::string& path) { return [path] { TokenFile(path, kAuto, 100); }; };
  expect_error(Status::usage, {"no such file", "absent"}, opens(folder.path("absent")));
  expect_error(Status::usage, {"a link to \"gone\", which does not exist"}, opens(folder.path("link")));
  expect_error(Status::failed, {"a folder where a file is needed"}, opens(folder.path()));
  expect_error(Status::failed, {"not a regular file"}, opens("/dev/null"));
}

TEST(Tokens, FormatNames) {
  EXPECT_EQ(token_format("auto", "k"), kAuto);
  EXPECT_EQ(token_format("llmc", "k"), TokenFormat::llmc);
  EXPECT_EQ(token_format("nanogpt", "k"), TokenFormat::nanogpt);
  EXPECT_EQ(token_format("megatron", "k"), TokenFormat::megatron);
  EXPECT_EQ(token_format("llmq", "k"), TokenFormat::llmq);
  EXPECT_EQ(token_format("bytes", "k"), TokenFormat::bytes);
  expect_error(Status::usage,
               {"\"csv\" is unknown", "\"auto\", \"llmc\", \"nanogpt\", \"megatron\", \"llmq\", \"bytes\""},
               [] { token_format("csv", "data.format"); });
}

TEST(Tokens, IdentityTellsFilesApart) {
  const TemporaryFolder folder;
  std::string bytes(5'000'000, 'a');  // above 4 MiB: sampled
  const auto identity = [&](const std::string& content) {
    return identity_of(File(folder.write("f", content)));
  };
  const FileSum original = identity(bytes);
  EXPECT_EQ(identity(bytes), original);
  EXPECT_NE(identity(bytes + "a").xxh3, original.xxh3);
  for (const size_t at : {size_t{0}, size_t{65'535}, bytes.size() - 1}) {
    std::string changed = bytes;
    changed[at] = 'b';
    EXPECT_NE(identity(changed).xxh3, original.xxh3) << at;
  }
  EXPECT_NE(identity("abc").xxh3, identity("abd").xxh3);
}

}  // namespace
}  // namespace tandem
