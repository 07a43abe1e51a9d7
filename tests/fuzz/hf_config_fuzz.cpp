// Input: a config.json.
#include <cmath>
#include <string>

#include "core/io/hf_config.h"
#include "core/model/params.h"
#include "tests/fuzz/fuzzing.h"

namespace tandem {
namespace {

void require_sound(const Arch& arch) {
  for (const int64_t size : {arch.vocab, arch.hidden, arch.intermediate, arch.layers, arch.heads,
                             arch.kv_heads, arch.head_dim, arch.max_positions})
    require(size >= 1, "sizes are positive");
  require(arch.heads % arch.kv_heads == 0, "key heads divide query heads");
  require(arch.windows.empty() || std::cmp_equal(arch.windows.size(), arch.layers),
          "a window for every layer");
  require(arch.norm_eps > 0 && std::isfinite(arch.rope.theta) && arch.rope.theta > 0, "numbers are usable");
}

/// The parameters have sizes that can be added up, blocks that hold them, and usable frequencies.
void require_usable(const Arch& arch) {
  if (arch.layers > 64) return;  // the same again, slowly
  const ParamTable table(arch);
  int64_t sum = 0;
  for (const BlockSpec& block : table.blocks()) {
    require(block.numel > 0, "a block holds parameters");
    sum += block.numel;
  }
  require(sum == table.padded_count() && sum >= table.parameter_count(), "blocks hold all parameters");
  if (arch.learned_positions) return;
  const std::vector<double> frequencies = rope_inverse_frequencies(arch.rope, arch.head_dim);
  require(std::cmp_equal(frequencies.size(), arch.head_dim / 2), "a frequency for every pair");
}

/// The config of a checkpoint describes the same model, stored in the dtype.
void require_same_in(DType dtype, const std::string& text, const json::Document& document, const Arch& arch) {
  const json::Document stored = parse_hf_json(with_stored_dtype(text, document, dtype), "again");
  for (const char* key : {"torch_dtype", "dtype"})
    if (const json::Value* value = document.root.find(key); value != nullptr && value->is_string()) {
      const json::Value* now = stored.root.find(key);
      require(now != nullptr && now->is_string(), "a dtype stays one");
      require(now->string()->ends_with(name_of(dtype)), "a dtype is that of the weights");
    }
  const Arch again = parse_hf_config(json::Node(stored));
  require(again.hidden == arch.hidden && again.layers == arch.layers && again.rope == arch.rope &&
              again.windows == arch.windows,
          "the model stays as it is");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string text(reinterpret_cast<const char*>(data), size);
  json::Document document;
  Arch arch;
  const bool accepted = accepts([&] {
    document = parse_hf_json(text, "config.json");
    arch = parse_hf_config(json::Node(document));
  });
  if (!accepted) return 0;
  require_sound(arch);
  require_usable(arch);
  require_same_in(DType::bf16, text, document, arch);
  return 0;
}
