// Large token files cost neither memory nor time: sparse files of 3 GB, read at their end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/data/token_file.h"
#include "tests/core/address_sanitizer.h"
#include "tests/core/expect_error.h"
#include "tests/core/token_bytes.h"

namespace tandem {
namespace {

/// Makes the file `size` bytes long, zeros without room on the disk but for `end` at its end.
void extend(const std::string& path, uint64_t size, const std::string& end) {
  const int file = ::open(path.c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  EXPECT_EQ(::ftruncate(file, static_cast<off_t>(size)), 0);
  EXPECT_EQ(::pwrite(file, end.data(), end.size(), static_cast<off_t>(size - end.size())),
            static_cast<ssize_t>(end.size()));
  EXPECT_EQ(::close(file), 0);
}

/// Bytes of this process in memory.
uint64_t resident() {
  uint64_t all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void expect_little_more_than(uint64_t before) {
  EXPECT_TRUE(kAddressSanitizer || resident() < before + (8u << 20)) << resident() - before;
}

/// Opens the file, reads its last tokens and takes its identity: 4 MiB are looked at, and as much is held.
void expect_read_at_its_end(const std::string& path, TokenFormat format, uint64_t count) {
  const uint64_t before = resident();
  const TokenFile file(path, format, 100);
  ASSERT_EQ(file.tokens(), count);
  std::vector<int32_t> window(3);
  file.read(count - 3, window);
  EXPECT_EQ(window, (std::vector<int32_t>{0, 7, 99}));
  EXPECT_EQ(identity_of(file.file()).bytes, file.file().size());
  const std::string number = "(token number " + std::to_string(count - 1) + ")";
  expect_error(Status::failed, {"token 99 at byte ", number.c_str()},
               [&] { TokenFile(path, format, 99).read(count - 3, window); });
  expect_little_more_than(before);
}

TEST(TokensSize, FilesOfThreeGigabytesAreReadAtTheirEnd) {
  const TemporaryFolder folder;
  const uint64_t count = 1'500'000'001;
  const std::string last16 = words<uint16_t>({7, 99}), last32 = words<int32_t>({7, 99});
  const std::string llmc = folder.write("llmc", llmc_header(20240520, 1, static_cast<int32_t>(count)));
  extend(llmc, 1024 + count * 2, last16);
  expect_read_at_its_end(llmc, TokenFormat::automatic, count);
  const std::string nanogpt = folder.write("nanogpt", "");
  extend(nanogpt, count * 2, last16);
  expect_read_at_its_end(nanogpt, TokenFormat::nanogpt, count);
  const std::string bytes = folder.write("bytes", "");
  extend(bytes, 2 * count, "\x07\x63");
  expect_read_at_its_end(bytes, TokenFormat::bytes, 2 * count);
  const std::string llmq = folder.write("llmq", LlmqHeader{.count = static_cast<int32_t>(count)}.bytes());
  extend(llmq, 1024 + count * 4, last32);
  expect_read_at_its_end(llmq, TokenFormat::automatic, count);
  folder.write("m.idx", MegatronIndex::of({1'500'000'000, 1}, 5, 8).bytes());
  const std::string megatron = folder.write("m.bin", "");
  extend(megatron, count * 8, words<int64_t>({7, 99}));
  expect_read_at_its_end(megatron, TokenFormat::automatic, count);
}

/// 4 million empty sequences: an index of 48 MB of zeros.
TEST(TokensSize, ALongIndexIsReadInPieces) {
  const TemporaryFolder folder;
  const uint64_t sequences = 4'000'000;
  const std::string index = folder.write("m.idx", MegatronIndex{}.header(sequences, 2));
  extend(index, 34 + 12 * sequences + 16, bytes_of(int64_t{0}) + bytes_of(sequences));
  folder.write("m.bin", "");
  const uint64_t before = resident();
  EXPECT_EQ(TokenFile(index, TokenFormat::automatic, 100).tokens(), 0u);
  expect_little_more_than(before);
}

/// No file of these sizes exists: the claims must be refused before anything is allocated.
TEST(TokensSize, ClaimsOfHugeCountsCostNothing) {
  const TemporaryFolder folder;
  folder.write("m.bin", "12");
  const uint64_t before = resident();
  const auto refused = [&](const std::string& bytes, const char* name) {
    const std::string path = folder.write(name, bytes);
    expect_error(Status::failed, {name}, [&] { TokenFile(path, TokenFormat::automatic, 100); });
  };
  refused(llmc_header(20240520, 1, INT32_MAX), "llmc2");
  refused(llmc_header(20240801, 7, INT32_MAX), "llmc4");
  refused(LlmqHeader{.count = INT32_MAX, .has_mask = 1}.bytes(), "llmq");
  refused(MegatronIndex{}.header(uint64_t{1} << 63, 1), "m.idx");
  refused(MegatronIndex{}.header(1, uint64_t{1} << 63), "m.idx");
  expect_little_more_than(before);
}

}  // namespace
}  // namespace tandem
