// llmq's token files: scripts/tokenize_data.py writes them (version 2), src/training/dataloader.cpp reads
// them.
#include <cstring>
#include <string_view>

#include "core/data/token_layout.h"

namespace tandem {

namespace {

constexpr std::string_view kMagic = "BIN.TOK\n";
enum Field { kVersion = 2, kTokenBytes = 3, kCount = 4, kVocab = 5, kHasMask = 6 };  // after the magic

}  // namespace

bool is_llmq(const File& file) {
  const TokenHeader header = token_header(file);
  return std::memcmp(header.data(), kMagic.data(), kMagic.size()) == 0;
}

TokenLayout llmq_layout(const File& file) {
  const TokenHeader header = token_header(file);
  const std::string where = printable(file.path());
  if (!is_llmq(file)) {
    const std::string kind = token_file_kind(file);
    throw Error(Status::failed,
                kind.empty() ? "no llmq token file: it does not begin with BIN.TOK"
                             : fmt::format("no llmq token file, but {}", kind),
                where, "set data.format (eval: --format) to what the file is, or to \"auto\"");
  }
  CHECK(file.size() >= kTokenHeaderBytes, Status::failed,
        fmt::format("{} bytes, but the header of an llmq token file alone has {}", file.size(),
                    kTokenHeaderBytes),
        where, "the file is cut off: copy it again");
  CHECK(header[kVersion] == 1 || header[kVersion] == 2, Status::failed,
        fmt::format("version {} of the llmq token format; 1 and 2 are read", header[kVersion]), where,
        "write the file again with llmq's scripts/tokenize_data.py");
  CHECK(header[kTokenBytes] == 4, Status::failed,
        fmt::format("the header says {} bytes per token; llmq writes 4", header[kTokenBytes]), where,
        "write the file again with llmq's scripts/tokenize_data.py");
  CHECK(header[kCount] >= 0, Status::failed,
        fmt::format("the header counts {} tokens (32 bits hold at most 2147483647)", header[kCount]), where,
        "split the tokens into several files");
  TokenLayout layout{.begin = kTokenHeaderBytes,
                     .token_bytes = 4,
                     .is_signed = true,
                     .count = static_cast<uint64_t>(header[kCount])};
  uint64_t expected = kTokenHeaderBytes + layout.count * layout.token_bytes;
  if (header[kVersion] == 2) {  // version 1 has filler from here on
    if (header[kVocab] > 0) layout.vocab = static_cast<uint64_t>(header[kVocab]);
    if (header[kHasMask] == 1) {
      layout.mask_begin = expected;
      expected += (layout.count + 7) / 8;
    }
  }
  CHECK(file.size() == expected, Status::failed,
        fmt::format("the header counts {} tokens of 4 bytes{}, so the file should have {} bytes, but has {}",
                    layout.count, layout.mask_begin ? " and a mask of one bit each" : "", expected,
                    file.size()),
        where, file.size() < expected ? "the file is cut off: copy it again" : "write the file again");
  return layout;
}

}  // namespace tandem
