#pragma once
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "core/base/dtype.h"
#include "core/io/atomic_file.h"
#include "core/io/file.h"
#include "core/io/safetensors_header.h"

namespace tandem {

/// True for F32, BF16, F16 and F64.
bool converts_to_float(const SafetensorsEntry& entry);

/// A safetensors file, open for reading. Construction checks the whole header (see parse_safetensors_header)
/// and reads no data; a file of another kind is called by its name. All errors are Error(failed). Serves
/// several threads at once.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path, FileAccess access = FileAccess::sequential);
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const File& file() const { return file_; }
  /// By offset.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// nullptr if there is none of that name.
  [[nodiscard]] const SafetensorsEntry* find(const std::string& name) const;
  /// Fills out with stored bytes, from byte `offset` of the entry's data on.
  void read_bytes(const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) const;
  /// Fills out with elements from `first` on, converted to fp32: exact for F32, BF16 and F16, rounded for
  /// F64. The dtype must be one of these (converts_to_float). Scratch: at most 4 MiB.
  void read(const SafetensorsEntry& entry, uint64_t first, std::span<float> out) const;

 private:
  File file_;
  SafetensorsHeader header_;
  uint64_t data_begin_ = 0;
  std::unordered_map<std::string, size_t> by_name_;
};

/// The format's name for a dtype of ours: "BF16".
std::string_view safetensors_name(DType dtype);
/// The dtype of that name in the format; nothing for those that Tandem does not compute with.
std::optional<DType> dtype_of(std::string_view safetensors_name);
/// Of the dtypes of some tensors the only one, as Tandem calls it ("bfloat16") or else as the format does
/// ("I64"); "mixed" if there are several; "none" of none.
std::string common_dtype(const std::set<std::string>& stored);

/// Fills out with bytes [offset, offset + out.size()) of an entry's data; both are multiples of the element
/// size.
using FetchBytes =
    std::function<void(const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out)>;

/// The most that write_safetensors asks for, and holds, at once.
inline constexpr uint64_t kSafetensorsChunk = 4 << 20;

/// Writes a safetensors file atomically. Of the entries, name, dtype and shape are given; order and offsets
/// follow from them (lay_out). Data are fetched in file order, in chunks: nothing else is held in
/// memory. Errors: those of AtomicFile, and what fetch throws (then no file appears).
FileSum write_safetensors(const std::string& path, SafetensorsHeader header, const FetchBytes& fetch);

}  // namespace tandem
