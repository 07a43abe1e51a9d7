#include <gtest/gtest.h>

#include "core/data/token_file.h"
#include "tests/core/expect_error.h"
#include "tests/core/token_bytes.h"

namespace tandem {
namespace {

constexpr auto kMegatron = TokenFormat::megatron;

/// corpus.bin and corpus.idx.
struct Corpus {
  TemporaryFolder folder;
  std::string prefix = folder.path("corpus");
  void write(const MegatronIndex& index, const std::string& data) const { write(index.bytes(), data); }
  void write(const std::string& index, const std::string& data) const {
    folder.write("corpus.idx", index);
    folder.write("corpus.bin", data);
  }
  TokenFile open(int64_t vocab = 100) const { return TokenFile(prefix, kMegatron, vocab); }
  void expect_refused(std::initializer_list<const char*> parts, Status status = Status::failed) const {
    expect_error(status, parts, [&] { open(); });
    expect_error(status, parts, [&] { TokenFile(prefix + ".bin", kMegatron, 100); });
  }
};

TEST(TokensMegatron, IsNamedByItsBinItsIdxOrWhatTheyShare) {
  const Corpus corpus;
  corpus.write(MegatronIndex::of({2, 0, 3}, 8, 2), words<uint16_t>({5, 6, 7, 8, 9}));
  const std::vector<int32_t> expected{5, 6, 7, 8, 9};
  for (const auto format : {kMegatron, TokenFormat::automatic})
    for (const char* suffix : {"", ".bin", ".idx"}) {
      const TokenFile file(corpus.prefix + suffix, format, 100);
      EXPECT_EQ(read_all(file), expected) << suffix;
      ASSERT_EQ(file.files().size(), 2u);
      EXPECT_EQ(file.files()[0].path(), corpus.prefix + ".bin");
      EXPECT_EQ(file.files()[1].path(), corpus.prefix + ".idx");
    }
  EXPECT_EQ(token_path(corpus.prefix), corpus.prefix + ".idx");
  EXPECT_EQ(token_path(corpus.prefix + ".bin"), corpus.prefix + ".bin");
  EXPECT_EQ(token_path(corpus.folder.path("absent")), corpus.folder.path("absent"));
}

TEST(TokensMegatron, EveryIntegerTypeIsRead) {
  const Corpus corpus;
  const auto expect_read = [&](uint8_t code, int64_t bytes, const std::string& data,
                               const std::vector<int32_t>& expected, int64_t vocab) {
    corpus.write(MegatronIndex::of({static_cast<int32_t>(expected.size())}, code, bytes), data);
    EXPECT_EQ(read_all(corpus.open(vocab)), expected) << int(code);
  };
  expect_read(1, 1, words<uint8_t>({0, 255}), {0, 255}, 256);
  expect_read(2, 1, words<int8_t>({0, 127}), {0, 127}, 256);
  expect_read(3, 2, words<int16_t>({1, 32767}), {1, 32767}, 32768);
  expect_read(4, 4, words<int32_t>({1, 151643}), {1, 151643}, 151936);
  expect_read(5, 8, words<int64_t>({1, 2147483646}), {1, 2147483646}, int64_t{1} << 31);
  expect_read(8, 2, words<uint16_t>({1, 65535}), {1, 65535}, 65536);
}

TEST(TokensMegatron, NegativeAndLargeIdsAreNamedWithTheirPlace) {
  const Corpus corpus;
  const std::string bin = corpus.prefix + ".bin";
  const auto expect_bad = [&](uint8_t code, int64_t bytes, const std::string& data,
                              std::initializer_list<const char*> parts) {
    corpus.write(MegatronIndex::of({3}, code, bytes), data);
    expect_error(Status::failed, parts, [&] { read_all(corpus.open()); });
    expect_error(Status::failed, parts, [&] { corpus.open().check_tokens(1 << 20); });
  };
  expect_bad(2, 1, words<int8_t>({1, 2, -3}),
             {"token -3 at byte 2 (token number 2) is negative", bin.c_str()});
  expect_bad(3, 2, words<int16_t>({1, -32768, 2}), {"token -32768 at byte 2 ", "negative"});
  expect_bad(4, 4, words<int32_t>({1, 2, -1}), {"token -1 at byte 8 ", "negative"});
  expect_bad(5, 8, words<int64_t>({1, 2, INT64_MIN}), {"token -9223372036854775808 at byte 16 ", "negative"});
  expect_bad(5, 8, words<int64_t>({1, int64_t{1} << 32, 0}),
             {"token 4294967296 at byte 8 ", "vocabulary of 100"});
  expect_bad(8, 2, words<uint16_t>({1, 2, 100}), {"token 100 at byte 4 ", "vocabulary of 100"});
}

TEST(TokensMegatron, SixteenBitsForALargeVocabularyAreRefused) {
  const Corpus corpus;
  corpus.write(MegatronIndex::of({1}, 8, 2), words<uint16_t>({1}));
  expect_error(Status::failed, {"uint16", "65537 (above 65536)"}, [&] { corpus.open(65537); });
  corpus.write(MegatronIndex::of({1}, 3, 2), words<int16_t>({1}));
  expect_error(Status::failed, {"as int16", "32769 (above 32768)"}, [&] { corpus.open(32769); });
}

TEST(TokensMegatron, HeadersThatAreNotReadAreRefused) {
  const Corpus corpus;
  const std::string data = words<uint16_t>({5, 6});
  MegatronIndex index = MegatronIndex::of({2}, 8, 2);
  index.magic = std::string("MMIDIDX\0\1", 9);
  corpus.write(index, data);
  corpus.expect_refused({"no Megatron index", "MMIDIDX", "corpus.idx"});
  index = MegatronIndex::of({2}, 8, 2);
  index.version = 2;
  corpus.write(index, data);
  corpus.expect_refused({"version 2 of the Megatron index; 1 is read", "corpus.idx"});
  for (const auto& [code, said] :
       {std::pair(6, "floating-point"), std::pair(7, "floating-point"), std::pair(0, "unknown"),
        std::pair(9, "unknown"), std::pair(255, "code 255")}) {
    corpus.write(MegatronIndex::of({2}, static_cast<uint8_t>(code), 2), data);
    corpus.expect_refused({"dtype code", said, "corpus.idx"});
  }
  corpus.write(MegatronIndex::of({2}, 8, 2).bytes().substr(0, 33), data);
  corpus.expect_refused({"33 bytes, but the header of a Megatron index alone has 34"});
}

TEST(TokensMegatron, CountsThatTheIndexCannotHoldAreRefused) {
  const Corpus corpus;
  const MegatronIndex index = MegatronIndex::of({1, 1}, 8, 2);
  const std::string data = words<uint16_t>({5, 6}), arrays = index.bytes().substr(34);
  for (const uint64_t huge : {uint64_t{1} << 63, UINT64_MAX, uint64_t{1} << 62, UINT64_MAX / 12 + 2}) {
    corpus.write(index.header(huge, 3) + arrays, data);
    corpus.expect_refused({"the index counts", "sequences", "82 bytes in all"});
    corpus.write(index.header(2, huge) + arrays, data);
    corpus.expect_refused({"the index counts", "document indices", "82 bytes in all"});
  }
  // 8 times 2^61 + 1 is 8 in 64 bits: the size would fit.
  corpus.write(index.header(0, (uint64_t{1} << 61) + 1) + bytes_of(uint64_t{0}), "");
  corpus.expect_refused({"the index counts 0 sequences", "2305843009213693953 document indices"});
  corpus.write(index.header(2, 2) + arrays, data);
  corpus.expect_refused({"2 sequences and 2 document indices", "74 bytes (76 with modes), but it has 82"});
  corpus.write(index.bytes().substr(0, 81), data);
  corpus.expect_refused({"82 bytes (84 with modes), but it has 81", "cut off"});
}

TEST(TokensMegatron, ModesAreAcceptedWhereThereIsOnePerSequence) {
  const Corpus corpus;
  MegatronIndex index = MegatronIndex::of({1, 1, 0}, 8, 2);
  index.modes = std::string(3, '\1');
  corpus.write(index, words<uint16_t>({5, 6}));
  EXPECT_EQ(read_all(corpus.open()), (std::vector<int32_t>{5, 6}));
  for (const size_t wrong : {1, 2, 4}) {
    index.modes = std::string(wrong, '\1');
    corpus.write(index, words<uint16_t>({5, 6}));
    corpus.expect_refused({"with modes"});
  }
}

TEST(TokensMegatron, DocumentIndicesRunFromZeroToTheSequences) {
  const Corpus corpus;
  const std::string data = words<uint16_t>({5, 6, 7});
  const auto expect_refused = [&](const std::vector<int64_t>& documents,
                                  std::initializer_list<const char*> said) {
    MegatronIndex index = MegatronIndex::of({1, 1, 1}, 8, 2);
    index.documents = documents;
    corpus.write(index, data);
    corpus.expect_refused(said);
  };
  expect_refused({0, 1, 2}, {"the last document index is 2, not the number of sequences, 3"});
  expect_refused({0, 1, 4}, {"the last document index is 4, not the number of sequences, 3"});
  expect_refused({1, 2, 3}, {"the first document index is 1, not 0"});
  expect_refused({0, 2, 1, 3}, {"fall from 2 to 1"});
  expect_refused({0, -1, 3}, {"fall from 0 to -1"});
  expect_refused({}, {"no document indices"});
  MegatronIndex index = MegatronIndex::of({1, 1, 1}, 8, 2);
  index.documents = {0, 0, 3, 3};  // documents without a sequence
  corpus.write(index, data);
  EXPECT_EQ(corpus.open().tokens(), 3u);
}

TEST(TokensMegatron, SequencesLieInsideTheBinBackToBack) {
  const Corpus corpus;
  const auto expect_refused = [&](const std::vector<int32_t>& lengths, const std::vector<int64_t>& pointers,
                                  std::initializer_list<const char*> said) {
    MegatronIndex index = MegatronIndex::of(lengths, 8, 2);
    index.pointers = pointers;
    corpus.write(index, words<uint16_t>({5, 6, 7, 8}));  // 8 bytes
    corpus.expect_refused(said);
  };
  expect_refused({2, 3}, {0, 4},
                 {"sequence 1 (3 tokens of 2 bytes from byte 4 on) goes past the end", "8 bytes"});
  expect_refused({2, 2}, {0, INT64_MAX}, {"sequence 1", "from byte 9223372036854775807 on", "past the end"});
  expect_refused({INT32_MAX, 0}, {0, 0}, {"sequence 0 (2147483647 tokens", "past the end"});
  expect_refused({2, 2}, {0, -4}, {"sequence 1 has a length of 2 tokens and begins at byte -4"});
  expect_refused({2, -2}, {0, 4}, {"sequence 1 has a length of -2 tokens"});
  expect_refused({1, 2}, {0, 4}, {"sequence 1 begins at byte 4", "the one before it ends at 2"});
  expect_refused({2, 2}, {4, 0}, {"sequence 0 begins at byte 4", "the one before it ends at 0"});
  expect_refused({2, 1}, {0, 4}, {"the index lists 6 bytes of tokens, but the .bin has 8", "corpus.bin"});
  expect_refused({}, {}, {"the index lists 0 bytes of tokens, but the .bin has 8"});
}

TEST(TokensMegatron, EmptySequencesAreFine) {
  const Corpus corpus;
  corpus.write(MegatronIndex::of({0, 2, 0, 0, 1, 0}, 4, 4), words<int32_t>({5, 6, 7}));
  EXPECT_EQ(read_all(corpus.open()), (std::vector<int32_t>{5, 6, 7}));
  corpus.write(MegatronIndex::of({0, 0}, 4, 4), "");
  EXPECT_EQ(corpus.open().tokens(), 0u);
}

TEST(TokensMegatron, AFileOfThePairThatIsMissingIsNamed) {
  const Corpus corpus;
  const std::string index = corpus.prefix + ".idx", data = corpus.prefix + ".bin";
  corpus.folder.write("corpus.bin", words<uint16_t>({5, 6}));
  corpus.expect_refused({"there is no .idx", index.c_str(), "data.format"}, Status::usage);
  expect_error(Status::usage, {"no such file", index.c_str()},
               [&] { TokenFile(index, TokenFormat::automatic, 100); });
  expect_error(Status::failed, {"does not say how its tokens are stored"},
               [&] { TokenFile(data, TokenFormat::automatic, 100); });
  std::filesystem::remove(data);
  corpus.folder.write("corpus.idx", MegatronIndex::of({2}, 8, 2).bytes());
  corpus.expect_refused({"there is no .bin", data.c_str()});
  expect_error(Status::failed, {"there is no .bin"}, [&] { TokenFile(index, TokenFormat::automatic, 100); });
}

TEST(TokensMegatron, OtherFilesOfTheseNamesAreNotTakenForIt) {
  const TemporaryFolder folder;
  folder.write("words.idx", "1 2 3");
  const std::string llmc = folder.write("words.bin", llmc_header(20240520, 1, 1) + words<uint16_t>({7}));
  EXPECT_EQ(read_all(TokenFile(llmc, TokenFormat::automatic, 100)), (std::vector<int32_t>{7}));
  const std::string odd = folder.write("index", MegatronIndex::of({2}, 8, 2).bytes());
  expect_error(Status::failed, {"a Megatron index that is not called .idx", odd.c_str()},
               [&] { TokenFile(odd, TokenFormat::automatic, 100); });
  expect_error(Status::failed, {"no Megatron index", "words.idx"},
               [&] { TokenFile(folder.path("words.idx"), TokenFormat::automatic, 100); });
}

}  // namespace
}  // namespace tandem
