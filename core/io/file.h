#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/error.h"

namespace tandem {

/// An open file descriptor, closed on destruction. Move-only; -1 is empty.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

/// How a file's bytes are fetched.
enum class FileAccess : uint8_t {
  scattered,   ///< reads, here and there
  sequential,  ///< reads, mostly from front to back: the system reads ahead
  /// Through a memory map of 4 MiB at a time, so that no more of the file counts as this process's memory.
  /// The size is looked at before each of these. A file that is cut, or a disk that fails, during the copy
  /// after that still ends the process with SIGBUS, where reads throw.
  mapped,
};

/// A regular file, open for reading. Reads are positioned, so one File serves several threads.
class File {
 public:
  /// Follows links. An Error of status `absent` when there is nothing at the path (a dangling link is named
  /// with its target): usage for a path that the user named, failed for one that another file promised.
  /// Error(failed) when it is no regular file or can't be opened.
  explicit File(std::string path, Status absent = Status::usage, FileAccess access = FileAccess::scattered);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Fills out with the bytes from offset on. Error(failed) when the disk fails or the file has become
  /// shorter.
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  void read_mapped(uint64_t offset, std::span<std::byte> out) const;
  [[nodiscard]] Error ends_at(uint64_t offset) const;
  [[nodiscard]] uint64_t size_now() const;
  std::string path_;
  FileAccess access_;
  Descriptor descriptor_;
  uint64_t size_ = 0;
};

/// The whole file as text. Error(failed) above `most` bytes, before anything is allocated.
std::string read_text(const std::string& path, uint64_t most, Status absent = Status::usage);

/// Error(failed): "cannot DOING: REASON" for an errno, the path as its place, and what to do about such an
/// errno.
Error system_error(int number, const std::string& doing, const std::string& path);

/// What a file is by its first bytes, where that is something that people take for weights or tokens by
/// accident ("a git-lfs pointer", "an HTML page", "a zip archive ...", "empty"); "" if nothing is recognised.
std::string mistaken_kind(const File& file);

}  // namespace tandem
