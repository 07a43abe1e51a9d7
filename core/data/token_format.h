#pragma once
#include <cstdint>

namespace tandem {

/// How a token file is laid out.
enum class TokenFormat : uint8_t {
  automatic,  ///< by its magic number; a file without one must be named
  llmc,       ///< llm.c: 256 int32 of header, then uint16 (GPT-2) or uint32 (Llama 3) tokens
  nanogpt,    ///< nanoGPT: bare uint16
  megatron,   ///< Megatron-LM: NAME.bin of bare integers, described by NAME.idx
  llmq,       ///< llmq: 256 int32 of header, int32 tokens, perhaps a bit per token that says what is trained
  bytes,      ///< any file: each byte is a token
};

}  // namespace tandem
