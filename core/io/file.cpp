#include "core/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace tandem {

namespace {

/// Why nothing could be opened at the path although somebody named it.
Error nothing_there(const std::string& path, Status status) {
  std::error_code ignored;
  const auto target = std::filesystem::read_symlink(path, ignored);
  if (!ignored)
    return {status, fmt::format("a link to \"{}\", which does not exist", printable(target.string())),
            printable(path), "download or copy the file that the link stands for"};
  return {status, "no such file", printable(path), "check the path"};
}

std::string not_regular(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder where a file is needed";
  return "not a regular file";
}

/// One pread of at most 1 GiB (Linux cuts a longer one at 2 GiB - 4096), repeated when a signal interrupts
/// it.
ssize_t read_some(int fd, std::span<std::byte> out, uint64_t offset) {
  constexpr size_t kMost = size_t{1} << 30;
  ssize_t got = -1;
  do {
    got = ::pread(fd, out.data(), std::min(out.size(), kMost), static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got;
}

/// Bytes of a file, from a page's beginning on, as memory; unmapped on destruction, which also takes them off
/// this process's memory.
class Mapping {
 public:
  Mapping(int fd, uint64_t begin, size_t bytes)
      : bytes_(bytes),
        // Populated at once: one call in place of a fault for every few pages.
        at_(::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(begin))) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (made()) ::munmap(at_, bytes_);
  }
  [[nodiscard]] bool made() const { return at_ != MAP_FAILED; }
  [[nodiscard]] const std::byte* data() const { return static_cast<const std::byte*>(at_); }

 private:
  size_t bytes_;
  void* at_;
};

const char* advice(int number) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "make room, or choose another folder";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "check the disk";
    default:
      return "check the path, its permissions and how its file system is mounted";
  }
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Error system_error(int number, const std::string& doing, const std::string& path) {
  return {Status::failed, fmt::format("cannot {}: {}", doing, std::strerror(number)), printable(path),
          advice(number)};
}

File::File(std::string path, Status absent, FileAccess access) : path_(std::move(path)), access_(access) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer; for regular files it has no effect.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor_.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw nothing_there(path_, absent);
    throw system_error(errno, "open the file", path_);
  }
  struct stat info {};
  if (::fstat(descriptor_.get(), &info) != 0) throw system_error(errno, "look at the file", path_);
  CHECK(S_ISREG(info.st_mode), Status::failed, not_regular(info.st_mode), printable(path_),
        "name the file itself");
  size_ = static_cast<uint64_t>(info.st_size);
  // Only advice: a file system that takes none reads as well.
  if (access == FileAccess::sequential) ::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
}

Error File::ends_at(uint64_t offset) const {
  return {Status::failed,
          fmt::format("the file ends at byte {}, but had {} bytes when it was opened", offset, size_),
          printable(path_), "leave input files alone while they are read"};
}

uint64_t File::size_now() const {
  struct stat info {};
  if (::fstat(descriptor_.get(), &info) != 0) throw system_error(errno, "look at the file", path_);
  return static_cast<uint64_t>(info.st_size);
}

void File::read_mapped(uint64_t offset, std::span<std::byte> out) const {
  constexpr uint64_t kWindow = 4 << 20;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  while (!out.empty()) {
    const uint64_t begin = offset / page * page;
    const size_t lead = offset - begin, count = std::min<uint64_t>(out.size(), kWindow - lead);
    if (const uint64_t size = size_now(); size < offset + count) throw ends_at(size);
    const Mapping mapping(descriptor_.get(), begin, lead + count);
    if (!mapping.made()) throw system_error(errno, fmt::format("map the file at byte {}", begin), path_);
    std::memcpy(out.data(), mapping.data() + lead, count);
    out = out.subspan(count);
    offset += count;
  }
}

void File::read(uint64_t offset, std::span<std::byte> out) const {
  if (access_ == FileAccess::mapped) return read_mapped(offset, out);
  while (!out.empty()) {
    const ssize_t got = read_some(descriptor_.get(), out, offset);
    if (got < 0) throw system_error(errno, fmt::format("read at byte {}", offset), path_);
    if (got == 0) throw ends_at(offset);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

std::string read_text(const std::string& path, uint64_t most, Status absent) {
  const File file(path, absent);
  CHECK(file.size() <= most, Status::failed,
        fmt::format("{} bytes, and at most {} make sense here", file.size(), most), printable(path),
        "check that this is the file that was meant");
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string mistaken_kind(const File& file) {
  if (file.size() == 0) return "empty";
  std::array<char, 64> head{};
  const size_t length = std::min<uint64_t>(head.size(), file.size());
  file.read(0, std::as_writable_bytes(std::span(head).first(length)));
  std::string_view text(head.data(), length);
  if (starts_with(text, "version https://git-lfs"))
    return "a git-lfs pointer, not the data (run git lfs pull)";
  if (starts_with(text, std::string_view("PK\3\4", 4)))
    return "a zip archive, as torch.save writes it (pytorch_model.bin)";
  if (starts_with(text, "\x80\x02") || starts_with(text, "\x80\x04")) return "a Python pickle";
  if (starts_with(text, "GGUF")) return "a GGUF file";
  if (starts_with(text, "\x1f\x8b")) return "compressed with gzip";
  if (starts_with(text, "\x93NUMPY")) return "a NumPy array (.npy)";
  if (starts_with(text, "PAR1")) return "a Parquet table";
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos) text.remove_prefix(first);
  if (starts_with(text, "<!") || starts_with(text, "<html") || starts_with(text, "<HTML"))
    return "an HTML page, perhaps an error page that was downloaded";
  return "";
}

}  // namespace tandem
