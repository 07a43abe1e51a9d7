#include <algorithm>
#include <string_view>

#include "core/data/token_layout.h"

namespace tandem {

namespace {

/// What another file of llm.c's family is, by its first number; "" if it is none.
std::string_view llmc_kind(int32_t magic) {
  switch (magic) {
    case 20240326:
    case 20240803:
      return "a model file of llm.c";
    case 20240327:
      return "a debug state of llm.c";
    case 20240522:
      return "a multiple-choice evaluation file of llm.c";
    case 20240527:
      return "an optimizer state of llm.c";
    case 20240328:
      return "a tokenizer file of llm.c";
    default:
      return "";
  }
}

}  // namespace

TokenHeader token_header(const File& file) {
  TokenHeader header{};
  const auto bytes = std::as_writable_bytes(std::span(header));
  file.read(0, bytes.first(std::min<uint64_t>(bytes.size(), file.size())));
  return header;
}

std::string token_file_kind(const File& file) {
  if (is_llmc(file)) return "a token file of llm.c (format \"llmc\")";
  if (is_llmq(file)) return "a token file of llmq (format \"llmq\")";
  if (is_megatron_index(file)) return "a Megatron index (.idx)";
  if (const std::string_view kind = llmc_kind(token_header(file)[0]); !kind.empty()) return std::string(kind);
  return mistaken_kind(file);
}

}  // namespace tandem
