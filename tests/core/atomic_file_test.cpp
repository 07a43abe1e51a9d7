#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/core/expect_error.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

constexpr int kImpossibleHere = 77;

/// Runs the body in a child process and returns its exit status: its limits and mounts end with it.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      status = body();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// 0 when writing 1 MiB to the path fails as promised and the old content is all that the folder holds.
int full_disk_keeps_the_old(const TemporaryFolder& folder, const std::string& path, uint64_t claimed) {
  try {
    AtomicFile file(path, claimed);
    file.write(std::vector<std::byte>(1 << 20));
    file.commit();
    return 2;
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.status() != Status::failed) return 3;
    if (text.find("1048576 bytes needed") == std::string::npos ||
        text.find("make room") == std::string::npos) {
      fmt::print(stderr, "{}\n", text);
      return 4;
    }
  }
  return folder.entries() == 1 && folder.read("file") == "old" ? 0 : 5;
}

TEST(Checkpoint, FileAppearsWholeWithItsSumAndTheUmasksMode) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  FileSum sum;
  {
    AtomicFile file(folder.path("file"), 100);  // more claimed than written
    file.write(std::as_bytes(std::span("hello, ", 7)));
    file.write(std::as_bytes(std::span("world", 5)));
    EXPECT_FALSE(std::filesystem::exists(folder.path("file")));
    sum = file.commit();
  }
  ::umask(before);
  EXPECT_EQ(folder.read("file"), "hello, world");
  EXPECT_EQ(sum, (FileSum{12, XXH3_64bits("hello, world", 12)}));
  EXPECT_EQ(sum_of(File(folder.path("file"))), sum);
  struct stat info {};
  ASSERT_EQ(::stat(folder.path("file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Checkpoint, FileWithoutCommitLeavesTheOldOneAndNoLitter) {
  const TemporaryFolder folder;
  folder.write("file", "old");
  {
    AtomicFile file(folder.path("file"));
    file.write(std::as_bytes(std::span("new", 3)));
  }
  EXPECT_EQ(folder.read("file"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Checkpoint, LeftoverOfAKilledWriterIsReplaced) {
  const TemporaryFolder folder;
  EXPECT_EQ(in_child([&]() -> int {
              AtomicFile file(folder.path("file"));
              file.write(std::as_bytes(std::span("half", 4)));
              ::_exit(9);
            }),
            9);
  EXPECT_EQ(folder.entries(), 1u);
  write_atomically(folder.path("file"), "whole");
  EXPECT_EQ(folder.read("file"), "whole");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Checkpoint, LinkAsTargetIsReplacedAndItsTargetUnharmed) {
  const TemporaryFolder folder;
  folder.write("input", "precious");
  std::filesystem::create_symlink("input", folder.path("output"));
  write_atomically(folder.path("output"), "new");
  EXPECT_EQ(folder.read("input"), "precious");
  EXPECT_EQ(folder.read("output"), "new");
}

TEST(Checkpoint, CopyOntoItselfChangesNothing) {
  const TemporaryFolder folder;
  std::string bytes(3'000'001, 'x');
  bytes[2'500'000] = '\0';
  folder.write("file", bytes);
  const FileSum sum = copy_atomically(File(folder.path("file")), folder.path("file"));
  EXPECT_EQ(folder.read("file"), bytes);
  EXPECT_EQ(sum, (FileSum{bytes.size(), XXH3_64bits(bytes.data(), bytes.size())}));
}

TEST(Checkpoint, MissingFolderIsNamed) {
  const TemporaryFolder folder;
  expect_error(Status::failed, {"cannot create the file: No such file or directory", "absent/file"},
               [&] { AtomicFile file(folder.path("absent/file")); });
}

TEST(Checkpoint, FileSizeLimitKeepsTheOldFile) {
  for (const uint64_t claimed : {uint64_t{0}, uint64_t{1} << 20}) {
    const TemporaryFolder folder;
    const std::string path = folder.write("file", "old");
    EXPECT_EQ(in_child([&] {
                ::signal(SIGXFSZ, SIG_IGN);
                const rlimit limit{100'000, 100'000};
                ::setrlimit(RLIMIT_FSIZE, &limit);
                return full_disk_keeps_the_old(folder, path, claimed);
              }),
              0);
  }
}

TEST(Checkpoint, FullDiskKeepsTheOldFile) {
  for (const uint64_t claimed : {uint64_t{0}, uint64_t{1} << 20}) {
    const TemporaryFolder folder;
    const int status = in_child([&] {
      if (::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) return kImpossibleHere;
      if (::unshare(CLONE_NEWNS) != 0) return kImpossibleHere;
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
      if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=512k") != 0) return kImpossibleHere;
      const int result = full_disk_keeps_the_old(folder, folder.write("file", "old"), claimed);
      ::umount(folder.path().c_str());
      return result;
    });
    if (status == kImpossibleHere) GTEST_SKIP() << "mounting a small tmpfs is not allowed here";
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace tandem
