#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

namespace tandem {

namespace {

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string temporary_name(const std::string& path) {
  const std::filesystem::path name(path);
  return (name.parent_path() / ("." + name.filename().string() + ".tmp")).string();
}

}  // namespace

AtomicFile::AtomicFile(std::string path, uint64_t expected_bytes)
    : path_(std::move(path)), temporary_(temporary_name(path_)), expected_bytes_(expected_bytes) {
  ::unlink(temporary_.c_str());
  descriptor_ = Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (descriptor_.get() < 0) fail(errno, "create the file");
  if (expected_bytes == 0) return;
  if (::fallocate(descriptor_.get(), 0, 0, static_cast<off_t>(expected_bytes)) == 0) return;
  const int number = errno;
  if (number == EOPNOTSUPP || number == ENOSYS || number == EINTR) return;  // then write() meets a full disk
  ::unlink(temporary_.c_str());  // the destructor does not run for a constructor that throws
  fail(number, "claim the space");
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(int number, const char* doing) const {
  if (number != ENOSPC && number != EDQUOT && number != EFBIG) throw system_error(number, doing, path_);
  const uint64_t need = std::max(expected_bytes_, written_);
  struct statvfs disk {};
  std::string free;
  if (number == ENOSPC && ::statvfs(folder_of(path_).c_str(), &disk) == 0)
    free = fmt::format(", {} are free", static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize);
  throw system_error(number, fmt::format("{} ({} bytes needed{})", doing, need, free), path_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const int number = errno;
      written_ += bytes.size();  // what the message names as needed
      fail(number, "write the file");
    }
    written_ += static_cast<uint64_t>(done);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

FileSum AtomicFile::commit() {
  ASSERT(!committed_, "{} committed twice", path_);
  if (written_ < expected_bytes_ && ::ftruncate(descriptor_.get(), static_cast<off_t>(written_)) != 0)
    fail(errno, "cut the file");
  if (::fsync(descriptor_.get()) != 0) fail(errno, "sync the file");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno, "rename the finished file");
  committed_ = true;
  descriptor_ = Descriptor();
  sync_folder(folder_of(path_));
  return {written_, hash_.digest()};
}

FileSum write_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path, text.size());
  file.write(std::as_bytes(std::span(text)));
  return file.commit();
}

FileSum copy_atomically(const File& source, const std::string& path) {
  constexpr uint64_t kChunk = 1 << 20;
  AtomicFile file(path, source.size());
  std::vector<std::byte> chunk;
  for (uint64_t done = 0; done < source.size(); done += chunk.size()) {
    chunk.resize(std::min(kChunk, source.size() - done));
    source.read(done, chunk);
    file.write(chunk);
  }
  return file.commit();
}

void sync_folder(const std::string& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) throw system_error(errno, "open the folder", folder);
  // EINVAL: the file system has nothing to sync for folders.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) throw system_error(errno, "sync the folder", folder);
}

}  // namespace tandem
