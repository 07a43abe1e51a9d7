#pragma once
// Where the tokens of a file lie, by format. One function per format reads what its header or index says and
// checks it against the sizes of the files before anything is allocated; TokenFile reads what they describe.
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/data/token_format.h"
#include "core/io/file.h"

namespace tandem {

struct TokenLayout {
  uint64_t begin = 0;        ///< byte of the first token; the others follow it without gaps
  uint32_t token_bytes = 0;  ///< 1, 2, 4 or 8, little-endian
  bool is_signed = false;
  uint64_t count = 0;  ///< begin + count * token_bytes is at most the file's size
  /// Byte of one bit per token, least significant first: a token is a target only where its own bit is 1.
  std::optional<uint64_t> mask_begin = {};
  uint64_t vocab = 0;  ///< that the file names; 0: none
};

TokenLayout llmc_layout(const File& file);
TokenLayout llmq_layout(const File& file);
/// data: the .bin, index: the .idx. The index is read through once, in pieces, so that one of 10^8 sequences
/// needs no memory. The sequences must lie back to back in the order of the index and fill the .bin,
/// as Megatron's own writers leave them: an index that leaves gaps, reorders or repeats is refused.
TokenLayout megatron_layout(const File& data, const File& index);

/// The first 1024 bytes of a file, zeros where it is shorter.
using TokenHeader = std::array<int32_t, 256>;
inline constexpr uint64_t kTokenHeaderBytes = sizeof(TokenHeader);
TokenHeader token_header(const File& file);

/// Whether a file begins as the format demands.
bool is_llmc(const File& file);
bool is_llmq(const File& file);
bool is_megatron_index(const File& file);

/// What a file is that was taken for a token file of another kind ("a Megatron index (.idx)", "a model file
/// of llm.c", "a git-lfs pointer ..."); "" if nothing is recognised.
std::string token_file_kind(const File& file);

}  // namespace tandem
