#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file.h"
#include "core/io/hash.h"

namespace tandem {

/// A file that appears under its name complete or not at all. Written to `.NAME.tmp` in the same folder;
/// commit() syncs it, renames it over NAME (a link is replaced, never written through) and syncs the folder.
/// Without commit() the temporary file goes. One writer per name at a time; what a killed writer left behind
/// the next one replaces. Mode 0666 & ~umask. All failures are Error(failed); a full disk or quota names the
/// bytes needed and free.
class AtomicFile {
 public:
  /// expected_bytes: the final size, if known. The space is claimed at once where the file system can do
  /// that, so that a full disk shows before the work.
  explicit AtomicFile(std::string path, uint64_t expected_bytes = 0);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  /// Size and hash of what was written. If more was claimed than written, the rest is cut off.
  FileSum commit();

 private:
  [[noreturn]] void fail(int number, const char* doing) const;
  std::string path_, temporary_;
  uint64_t expected_bytes_ = 0, written_ = 0;
  Descriptor descriptor_;
  Xxh3 hash_;
  bool committed_ = false;
};

/// The text as a file, atomically.
FileSum write_atomically(const std::string& path, std::string_view text);

/// A byte-for-byte copy, atomically. The source may be the target itself or a link to it.
FileSum copy_atomically(const File& source, const std::string& path);

/// Makes names created, renamed or removed in the folder last through a power cut.
void sync_folder(const std::string& folder);

}  // namespace tandem
