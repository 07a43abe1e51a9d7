#include "core/data/token_layout.h"

namespace tandem {

namespace {

constexpr int32_t kGpt2Magic = 20240520, kLlama3Magic = 20240801;

}  // namespace

bool is_llmc(const File& file) {
  const int32_t magic = token_header(file)[0];
  return magic == kGpt2Magic || magic == kLlama3Magic;
}

TokenLayout llmc_layout(const File& file) {
  const TokenHeader header = token_header(file);
  const std::string where = printable(file.path());
  if (!is_llmc(file)) {
    const std::string kind = token_file_kind(file);
    throw Error(Status::failed,
                kind.empty() ? fmt::format("no llm.c token file: it begins with {}, not {} or {}", header[0],
                                           kGpt2Magic, kLlama3Magic)
                             : fmt::format("no llm.c token file, but {}", kind),
                where, "set data.format (eval: --format) to what the file is, or to \"auto\"");
  }
  CHECK(file.size() >= kTokenHeaderBytes, Status::failed,
        fmt::format("{} bytes, but the header of an llm.c token file alone has {}", file.size(),
                    kTokenHeaderBytes),
        where, "the file is cut off: copy it again");
  const bool gpt2 = header[0] == kGpt2Magic;
  const int32_t version = gpt2 ? 1 : 7;
  CHECK(header[1] == version, Status::failed,
        fmt::format("version {} of the llm.c token format; magic {} goes with version {}", header[1],
                    header[0], version),
        where, "write the file with a current llm.c data script");
  CHECK(header[2] >= 0, Status::failed,
        fmt::format("the header counts {} tokens (32 bits hold at most 2147483647)", header[2]), where,
        "split the tokens into several files");
  const TokenLayout layout{
      .begin = kTokenHeaderBytes, .token_bytes = gpt2 ? 2u : 4u, .count = static_cast<uint64_t>(header[2])};
  const uint64_t expected = kTokenHeaderBytes + layout.count * layout.token_bytes;
  CHECK(file.size() == expected, Status::failed,
        fmt::format("the header counts {} tokens of {} bytes, so the file should have {} bytes, but has {}",
                    layout.count, layout.token_bytes, expected, file.size()),
        where, file.size() < expected ? "the file is cut off: copy it again" : "write the file again");
  return layout;
}

}  // namespace tandem
