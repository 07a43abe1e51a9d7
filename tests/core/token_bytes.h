#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/token_file.h"
#include "tests/core/temporary_folder.h"

// Token files as bytes, well-formed or not.
namespace tandem {

template <class Word>
std::string words(const std::vector<int64_t>& tokens) {
  std::string bytes;
  for (const int64_t token : tokens) bytes += bytes_of(static_cast<Word>(token));
  return bytes;
}

/// llm.c's header: magic, version, count, zeros to 1024 bytes.
inline std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  std::string bytes = bytes_of(magic) + bytes_of(version) + bytes_of(count);
  bytes.resize(1024, '\0');
  return bytes;
}

/// llmq's header; as its writer does, what it does not use is filled with stars.
struct LlmqHeader {
  int32_t version = 2, token_bytes = 4, count = 0, vocab = 0, has_mask = 0;
  [[nodiscard]] std::string bytes() const {
    std::string out = "BIN.TOK\n" + bytes_of(version) + bytes_of(token_bytes) + bytes_of(count);
    if (version != 1) out += bytes_of(vocab) + bytes_of(has_mask);
    out.resize(1023, '*');
    return out + '\n';
  }
};

/// Megatron's .idx.
struct MegatronIndex {
  std::vector<int32_t> lengths = {};
  std::vector<int64_t> pointers = {};
  std::vector<int64_t> documents = {};
  uint8_t dtype = 8;
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  std::string modes = {};

  /// One document per sequence, back to back from the first byte on.
  static MegatronIndex of(const std::vector<int32_t>& lengths, uint8_t dtype, int64_t token_bytes) {
    MegatronIndex index{.lengths = lengths, .documents = {0}, .dtype = dtype};
    int64_t at = 0;
    for (const int32_t length : lengths) {
      index.pointers.push_back(at);
      index.documents.push_back(static_cast<int64_t>(index.pointers.size()));
      at += length * token_bytes;
    }
    return index;
  }
  [[nodiscard]] std::string header(uint64_t sequences, uint64_t document_indices) const {
    return magic + bytes_of(version) + bytes_of(dtype) + bytes_of(sequences) + bytes_of(document_indices);
  }
  [[nodiscard]] std::string bytes() const {
    std::string out = header(lengths.size(), documents.size());
    for (const int32_t length : lengths) out += bytes_of(length);
    for (const int64_t pointer : pointers) out += bytes_of(pointer);
    for (const int64_t document : documents) out += bytes_of(document);
    return out + modes;
  }
};

inline std::vector<int32_t> read_all(const TokenFile& file) {
  std::vector<int32_t> tokens(file.tokens());
  file.read(0, tokens);
  return tokens;
}

}  // namespace tandem
