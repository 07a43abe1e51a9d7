#pragma once
// Configs as texts, for the tests of what is read from them and what is refused.
#include <string>

#include "core/io/hf_config.h"
#include "tests/core/expect_error.h"

namespace tandem {

inline Arch arch_of(const std::string& text) {
  const json::Document document = parse_hf_json(text, "config.json");
  return parse_hf_config(json::Node(document));
}

/// A tiny config with further keys.
inline std::string tiny(const std::string& more) {
  return R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":256)" +
         (more.empty() ? "" : "," + more) + "}";
}

inline void refused(const std::string& text, std::initializer_list<const char*> parts) {
  expect_error(Status::failed, parts, [&] { arch_of(text); });
}

}  // namespace tandem
