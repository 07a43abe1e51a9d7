// Input: a byte; 0: u64 of data bytes and the JSON of a header; else a file.
#include <algorithm>
#include <vector>

#include "core/io/safetensors.h"
#include "tests/fuzz/fuzzing.h"

namespace tandem {
namespace {

void require_tiles(const SafetensorsHeader& header, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    require(entry.begin == end, "tensors lie back to back");
    require(entry.bytes <= data_bytes - end, "tensors lie inside the data");
    require(entry.bytes == bytes_needed(entry, "again"), "bytes are what dtype and shape need");
    end += entry.bytes;
  }
  require(end == data_bytes, "tensors fill the data");
}

/// What one of our own writers makes of the header says the same.
void require_survives_writing(SafetensorsHeader header, uint64_t data_bytes) {
  lay_out(header.entries);
  const std::string bytes = render_safetensors_header(header);
  require(bytes.size() % 8 == 0, "data begin at a multiple of 8");
  const SafetensorsHeader again =
      parse_safetensors_header(std::string_view(bytes).substr(8), data_bytes, "again");
  require(again.entries.size() == header.entries.size(), "all tensors are written");
  for (size_t i = 0; i < header.entries.size(); ++i)
    require(again.entries[i].name == header.entries[i].name &&
                again.entries[i].dtype == header.entries[i].dtype &&
                again.entries[i].shape == header.entries[i].shape,
            "a tensor is written as it is");
  header.metadata.try_emplace("format", "pt");
  require(again.metadata == header.metadata, "metadata are written");
}

void try_header(uint64_t data_bytes, std::string_view text) {
  SafetensorsHeader header;
  if (!accepts([&] { header = parse_safetensors_header(text, data_bytes, "fuzz"); })) return;
  require_tiles(header, data_bytes);
  require_survives_writing(std::move(header), data_bytes);
}

void try_file(std::string_view bytes) {
  const std::string path = folder().write("model.safetensors", std::string(bytes));
  accepts([&] {
    const SafetensorsFile file(path);
    const uint64_t header_bytes =
        8 + Input(reinterpret_cast<const uint8_t*>(bytes.data()), 8).take<uint64_t>();
    require_tiles({file.entries(), file.metadata()}, bytes.size() - header_bytes);
    for (const SafetensorsEntry& entry : file.entries()) {
      require(file.find(entry.name) == &entry, "a tensor is found by its name");
      std::string data(entry.bytes, '\0');
      file.read_bytes(entry, 0, std::as_writable_bytes(std::span(data)));
      const uint64_t begin = header_bytes + entry.begin;
      require(data == bytes.substr(begin, entry.bytes), "a tensor's bytes are those of the file");
      if (!converts_to_float(entry)) continue;
      std::vector<float> values(entry.bytes / (entry.dtype == "F64" ? 8 : entry.dtype == "F32" ? 4 : 2));
      file.read(entry, 0, values);
    }
  });
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::Input input(data, size);
  if (input.take<uint8_t>() == 0) {
    const auto data_bytes = input.take<uint64_t>();
    tandem::try_header(data_bytes, input.rest());
  } else {
    tandem::try_file(input.rest());
  }
  return 0;
}
