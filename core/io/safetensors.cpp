#include "core/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace tandem {

namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian and read as they are");

constexpr uint64_t kLongestHeader = 100'000'000;  // the reference implementation's limit

constexpr const char* kGetTheWeights =
    "download the file again, through git lfs where it is a pointer; other formats are converted by "
    "save_pretrained(safe_serialization=True)";

/// Length of the JSON header. Checks it before anything of that size is allocated.
uint64_t header_length(const File& file) {
  const auto refuse = [&](const std::string& what, const char* hint) {
    const std::string kind = mistaken_kind(file);
    if (!kind.empty())
      throw Error(Status::failed, "no safetensors: the file is " + kind, printable(file.path()),
                  kGetTheWeights);
    throw Error(Status::failed, what, printable(file.path()), hint);
  };
  if (file.size() < 8)
    refuse(fmt::format("{} bytes are too few for safetensors", file.size()),
           "the download was cut off: repeat it");
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kLongestHeader)
    refuse(fmt::format("no safetensors: the header would have {} bytes (at most {})", length, kLongestHeader),
           kGetTheWeights);
  if (length > file.size() - 8)
    refuse(fmt::format("the header has {} bytes, but only {} follow", length, file.size() - 8),
           "the file is cut off: download or copy it again");
  return length;
}

template <class T>
void convert(std::span<const std::byte> raw, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));  // a file's tensors need not be aligned
    if constexpr (std::is_same_v<T, double>) {
      out[i] = static_cast<float>(value);
    } else {
      out[i] = to_float(value);
    }
  }
}

using Convert = void (*)(std::span<const std::byte>, std::span<float>);
struct Conversion {
  std::string_view dtype;
  uint64_t bytes;
  Convert convert;
};
constexpr Conversion kConversions[] = {{"F32", 4, convert<float>},
                                       {"BF16", 2, convert<bf16>},
                                       {"F16", 2, convert<f16>},
                                       {"F64", 8, convert<double>}};

const Conversion* conversion_of(const SafetensorsEntry& entry) {
  const auto* found = std::ranges::find(kConversions, entry.dtype, &Conversion::dtype);
  return found == std::end(kConversions) ? nullptr : found;
}

}  // namespace

bool converts_to_float(const SafetensorsEntry& entry) { return conversion_of(entry) != nullptr; }

SafetensorsFile::SafetensorsFile(std::string path, FileAccess access)
    : file_(std::move(path), Status::failed, access) {
  std::string text(header_length(file_), '\0');
  file_.read(8, std::as_writable_bytes(std::span(text)));
  data_begin_ = 8 + text.size();
  header_ = parse_safetensors_header(text, file_.size() - data_begin_, file_.path());
  for (size_t i = 0; i < header_.entries.size(); ++i) by_name_.emplace(header_.entries[i].name, i);
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry, uint64_t offset,
                                 std::span<std::byte> out) const {
  ASSERT(offset <= entry.bytes && out.size() <= entry.bytes - offset, "bytes {}+{} of {}, tensor \"{}\"",
         offset, out.size(), entry.bytes, entry.name);
  file_.read(data_begin_ + entry.begin + offset, out);
}

void SafetensorsFile::read(const SafetensorsEntry& entry, uint64_t first, std::span<float> out) const {
  const Conversion* conversion = conversion_of(entry);
  ASSERT(conversion != nullptr, "{} read as fp32", entry.dtype);
  if (entry.dtype == "F32") return read_bytes(entry, first * 4, std::as_writable_bytes(out));
  const uint64_t chunk = kSafetensorsChunk / conversion->bytes;
  std::vector<std::byte> raw(std::min<uint64_t>(chunk, out.size()) * conversion->bytes);
  while (!out.empty()) {
    const uint64_t count = std::min<uint64_t>(chunk, out.size());
    const auto bytes = std::span(raw).first(count * conversion->bytes);
    read_bytes(entry, first * conversion->bytes, bytes);
    conversion->convert(bytes, out.first(count));
    first += count;
    out = out.subspan(count);
  }
}

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::f64:
      return "F64";
    case DType::i32:
      return "I32";
    case DType::u8:
      return "U8";
  }
  return "?";
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::u8})
    if (safetensors_name(dtype) == name) return dtype;
  return std::nullopt;
}

std::string common_dtype(const std::set<std::string>& stored) {
  if (stored.empty()) return "none";
  if (stored.size() > 1) return "mixed";
  const auto dtype = dtype_of(*stored.begin());
  return dtype ? std::string(name_of(*dtype)) : *stored.begin();
}

FileSum write_safetensors(const std::string& path, SafetensorsHeader header, const FetchBytes& fetch) {
  lay_out(header.entries);
  const std::string text = render_safetensors_header(header);
  const uint64_t data =
      header.entries.empty() ? 0 : header.entries.back().begin + header.entries.back().bytes;
  AtomicFile file(path, text.size() + data);
  file.write(std::as_bytes(std::span(text)));
  std::vector<std::byte> chunk;
  for (const SafetensorsEntry& entry : header.entries)
    for (uint64_t offset = 0; offset < entry.bytes; offset += chunk.size()) {
      chunk.resize(std::min(kSafetensorsChunk, entry.bytes - offset));
      fetch(entry, offset, chunk);
      file.write(chunk);
    }
  return file.commit();
}

}  // namespace tandem
