// Files by reads and through a memory map: the same bytes, the same errors, and no memory to speak of.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/io/model_folder.h"
#include "tests/core/address_sanitizer.h"
#include "tests/core/expect_error.h"
#include "tests/core/safetensors_bytes.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = 1 << 20;
constexpr FileAccess kAll[] = {FileAccess::scattered, FileAccess::sequential, FileAccess::mapped};

/// Bytes whose pattern has no period that a page or a window could hide.
std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t x = 1;
  for (char& c : text) c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  return text;
}

TEST(CheckpointAccess, EveryWayOfReadingGivesTheSameBytes) {
  const TemporaryFolder folder;
  const std::string content = pattern(9 * kMiB + 13), path = folder.write("f", content);
  for (const FileAccess access : kAll) {
    const File file(path, Status::failed, access);
    // Within a page, over a page's end, over a window's end, all, the last byte, nothing.
    for (const auto& [offset, bytes] : std::vector<std::pair<size_t, size_t>>{{7, 9},
                                                                              {4090, 20},
                                                                              {4 * kMiB - 3, 5 * kMiB},
                                                                              {0, content.size()},
                                                                              {content.size() - 1, 1},
                                                                              {5, 0}}) {
      std::string got(bytes, 'x');
      file.read(offset, std::as_writable_bytes(std::span(got)));
      EXPECT_TRUE(got == content.substr(offset, bytes)) << offset << "+" << bytes;
    }
  }
}

TEST(CheckpointAccess, AFileThatIsCutWhileOpenIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  for (const FileAccess access : kAll) {
    const std::string path = folder.write("f", pattern(3 * kMiB));
    const File file(path, Status::failed, access);
    std::vector<std::byte> all(3 * kMiB);
    file.read(0, all);
    fs::resize_file(path, kMiB);
    expect_error(Status::failed,
                 {"the file ends at byte 1048576, but had 3145728 bytes when it was opened", path.c_str(),
                  "leave input files alone"},
                 [&] { file.read(0, all); });
  }
}

/// One F32 tensor "x" of so many elements, as a sparse file: zeros, but for its last element.
std::string sparse_safetensors(const TemporaryFolder& folder, uint64_t count, float last) {
  const std::string header =
      fmt::format(R"({{"x":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", count, 4 * count);
  const std::string path = folder.write("sparse.safetensors", safetensors_bytes(header, ""));
  const uint64_t size = fs::file_size(path) + 4 * count;
  fs::resize_file(path, size);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size - 4));
  file << bytes_of(last);
  return path;
}

uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  return 0;
}

/// The most that the work took above what was resident before; nothing where the system can't tell.
template <class Work>
std::optional<uint64_t> peak_of(const Work& work) {
  constexpr const char* kResetPeak = "5";
  std::ofstream reset("/proc/self/clear_refs");
  if (!(reset << kResetPeak << std::flush)) return std::nullopt;
  const uint64_t before = status_bytes("VmRSS");
  work();
  const uint64_t peak = status_bytes("VmHWM");
  return peak - std::min(peak, before);
}

TEST(MemoryFiles, AHeaderThatClaims2To63BytesIsRefusedBeforeAnythingIsAllocated) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TemporaryFolder folder;
  for (const uint64_t claimed : {uint64_t{1} << 63, uint64_t{100'000'001}, uint64_t{99'999'999}}) {
    const std::string path = folder.write("m.safetensors", bytes_of(claimed) + "{}");
    const auto peak = peak_of([&] {
      expect_error(Status::failed, {"m.safetensors", "header"}, [&] { SafetensorsFile{path}; });
    });
    if (!peak) GTEST_SKIP() << "the system does not tell a peak";
    EXPECT_LT(*peak, 4 * kMiB) << claimed;
  }
}

TEST(MemoryFiles, ASparseFileOf3GiBCostsNoMemory) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TemporaryFolder folder;
  const uint64_t count = 3 * 256 * kMiB;
  const std::string path = sparse_safetensors(folder, count, 7.0f);
  ASSERT_GT(fs::file_size(path), 3072 * kMiB);
  for (const FileAccess access : {FileAccess::sequential, FileAccess::mapped}) {
    std::vector<float> window(3);
    const auto peak = peak_of([&] {
      const SafetensorsFile file(path, access);
      file.read(*file.find("x"), count - 3, window);
    });
    EXPECT_EQ(window, (std::vector<float>{0, 0, 7}));
    if (!peak) GTEST_SKIP() << "the system does not tell a peak";
    EXPECT_LT(*peak, 4 * kMiB);
  }
}

TEST(MemoryFiles, PagesOfAMapAreLetGoAsReadingGoesOn) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TemporaryFolder folder;
  const uint64_t count = 16 * kMiB;  // 64 MiB
  const std::string path = sparse_safetensors(folder, count, 7.0f);
  std::vector<float> all(count, 1.0f);  // resident before
  for (const FileAccess access : {FileAccess::sequential, FileAccess::mapped}) {
    const auto peak = peak_of([&] {
      const SafetensorsFile file(path, access);
      file.read(*file.find("x"), 0, all);
    });
    EXPECT_EQ(all[count - 2], 0.0f);
    EXPECT_EQ(all[count - 1], 7.0f);
    if (!peak) GTEST_SKIP() << "the system does not tell a peak";
    EXPECT_LT(*peak, 8 * kMiB);  // one window of 4 MiB
  }
}

}  // namespace
}  // namespace tandem
