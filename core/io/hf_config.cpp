#include "core/io/hf_config.h"

#include <algorithm>
#include <optional>

#include "core/io/hf_keys.h"
#include "core/io/hf_rope.h"

namespace tandem {

namespace {

using hf::given;
using hf::integer;
using hf::integer_or;
using hf::kComparePublisher;
using hf::positive_or;
using json::Node;

/// Which keys of a config set the window of attention.
enum class Windows : uint8_t { none, every_layer, chosen_layers };

/// What can be trained, with transformers' defaults for absent keys. The key of the table is model_type.
struct Family {
  std::string_view model_type, architecture;
  int64_t vocab = 32000, intermediate = 11008, positions = 2048;
  int64_t kv_heads = 0;          ///< 0: as many as heads
  int64_t head_dim = 0;          ///< 0: hidden / heads
  bool attention_bias = false;   ///< the key exists
  bool mlp_bias = false;         ///< the key exists
  bool always_qkv_bias = false;  ///< whatever the config says
  bool qk_norm = false;
  Windows windows = Windows::none;
  bool gpt2_keys = false;  ///< n_embd and so on; no other member but vocab and positions counts
};
constexpr Family kFamilies[] = {
    {.model_type = "llama", .architecture = "LlamaForCausalLM", .attention_bias = true, .mlp_bias = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .intermediate = 14336,
     .positions = 131072,
     .kv_heads = 8,
     .windows = Windows::every_layer},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .vocab = 151936,
     .intermediate = 22016,
     .positions = 32768,
     .kv_heads = 32,
     .always_qkv_bias = true,
     .windows = Windows::chosen_layers},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .vocab = 151936,
     .intermediate = 22016,
     .positions = 32768,
     .kv_heads = 32,
     .head_dim = 128,
     .attention_bias = true,
     .qk_norm = true,
     .windows = Windows::chosen_layers},
    {.model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .vocab = 50257,
     .positions = 1024,
     .gpt2_keys = true},
};
constexpr int64_t kWindow = 4096, kMaxWindowLayers = 28;  // Mistral's and Qwen's defaults

std::string supported_types() {
  std::string text;
  for (const Family& family : kFamilies) text += (text.empty() ? "" : ", ") + std::string(family.model_type);
  return text;
}

const Family& family_of(const Node& config) {
  const std::string hint = "model types that can be trained: " + supported_types();
  const auto type = given(config, "model_type");
  if (!type) config.fail("the config names no model_type", hint);
  const auto family = std::ranges::find(kFamilies, type->as_string(), &Family::model_type);
  if (family == std::end(kFamilies))
    type->fail(fmt::format("model_type {} can't be trained", describe(type->value())), hint);
  return *family;
}

void check_architecture(const Node& config, const Family& family) {
  const auto list = given(config, "architectures");
  if (!list || list->items().empty()) return;
  for (const Node& item : list->items())
    if (item.as_string() == family.architecture) return;
  list->fail(fmt::format("architecture {} can't be trained", describe(list->items().front().value())),
             fmt::format("a {} model needs {}: classifiers, reward models and encoders have other heads",
                         family.model_type, family.architecture));
}

/// Keys whose value, if it is not the plain one, changes what the model computes in a way that is not built.
void check_variants(const Node& config) {
  if (const auto quantised = given(config, "quantization_config")) {
    const auto method = quantised->value().find("quant_method");
    quantised->fail(
        fmt::format("the checkpoint is quantised ({})", method ? describe(*method) : "method not named"),
        "dequantise it first, or train from the original 16-bit checkpoint");
  }
  if (const auto act = given(config, "hidden_act");
      act && act->as_string() != "silu" && act->as_string() != "swish")  // two names of one function
    act->fail(fmt::format("hidden_act {} is not supported", describe(act->value())), "supported: silu");
}

void check_heads(const Node& config, const Arch& arch) {
  const auto refuse = [&](const char* key, std::string what) {
    const auto member = given(config, key);
    (member ? *member : config).fail(std::move(what), kComparePublisher);
  };
  if (arch.heads % arch.kv_heads != 0)
    refuse("num_key_value_heads",
           fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}", arch.heads,
                       arch.kv_heads));
  if (arch.head_dim % 2 != 0)
    refuse("head_dim", fmt::format("head_dim {} is odd; rotary embedding turns pairs", arch.head_dim));
}

int64_t kv_heads_of(const Node& config, const Family& family, const Arch& arch) {
  const int64_t absent = family.kv_heads > 0 ? family.kv_heads : arch.heads;
  const bool null = config.find("num_key_value_heads") && !given(config, "num_key_value_heads");
  return null ? arch.heads : integer_or(config, "num_key_value_heads", absent, hf::kMostHeads);
}

int64_t head_dim_of(const Node& config, const Family& family, const Arch& arch) {
  if (const auto member = given(config, "head_dim")) return integer(*member, hf::kMostHeadDim);
  if (family.head_dim > 0) return family.head_dim;
  if (arch.hidden % arch.heads != 0)
    config.fail(
        fmt::format("hidden_size {} is no multiple of num_attention_heads {}", arch.hidden, arch.heads),
        "set head_dim if it is not hidden_size / num_attention_heads");
  return arch.hidden / arch.heads;
}

/// The window in tokens; 0 where null says that attention is full.
int64_t window_of(const Node& config) {
  const bool null = config.find("sliding_window") && !given(config, "sliding_window");
  return null ? 0 : integer_or(config, "sliding_window", kWindow, hf::kMostPositions);
}

/// layer_types, which decides for itself which layers have the window.
std::vector<int64_t> listed_windows(const Node& list, int64_t window, const Arch& arch) {
  const std::vector<Node> types = list.items();
  if (static_cast<int64_t>(types.size()) != arch.layers)
    list.fail(fmt::format("layer_types has {} entries for {} layers", types.size(), arch.layers),
              "one entry for each of num_hidden_layers");
  std::vector<int64_t> windows;
  for (const Node& type : types) {
    const bool sliding = type.as_string() == "sliding_attention";
    if (!sliding && type.as_string() != "full_attention")
      type.fail(fmt::format("layer type {} is not supported", describe(type.value())),
                "supported: full_attention, sliding_attention");
    if (sliding && window == 0)
      type.fail("the layer has a sliding window, but the config sets none",
                "set use_sliding_window to true and sliding_window to its length");
    windows.push_back(sliding ? window : 0);
  }
  return windows;
}

/// Of each layer, as Arch has them.
std::vector<int64_t> windows_of(const Node& config, const Family& family, const Arch& arch) {
  const auto layers = static_cast<size_t>(arch.layers);
  if (family.windows == Windows::none) return {};
  if (family.windows == Windows::every_layer) return std::vector<int64_t>(layers, window_of(config));
  const int64_t window = config.bool_or("use_sliding_window", false) ? window_of(config) : 0;
  if (const auto list = given(config, "layer_types")) return listed_windows(*list, window, arch);
  std::vector<int64_t> windows(layers, window);
  const auto first = given(config, "max_window_layers");  // may be 0, for all
  const auto full = first ? first->value().whole_i64() : kMaxWindowLayers;
  if (!full || *full < 0)
    first->fail(fmt::format("max_window_layers must be 0 or more, but is {}", describe(first->value())),
                "the layers before it have full attention");
  std::fill_n(windows.begin(), std::min<size_t>(layers, static_cast<size_t>(*full)), 0);
  return windows;
}

/// The row of the padding token; an id outside the vocabulary, such as -1, is no token.
int64_t padding_row_of(const Node& config, const Arch& arch) {
  const auto id = given(config, "pad_token_id");
  const auto row = id ? id->value().whole_i64() : std::nullopt;
  return row && *row >= 0 && *row < arch.vocab ? *row : -1;
}

double dropout_of(const Node& config) {
  const auto rate = given(config, "attention_dropout");
  return rate ? rate->as_double() : 0;
}

void check_gpt2_variants(const Node& config) {
  if (const auto act = given(config, "activation_function");
      act && act->as_string() != "gelu_new" && act->as_string() != "gelu_pytorch_tanh")
    act->fail(fmt::format("activation_function {} is not supported", describe(act->value())),
              "supported: gelu_new, gelu_pytorch_tanh");
  const std::pair<const char*, bool> supported[] = {{"scale_attn_weights", true},
                                                    {"scale_attn_by_inverse_layer_idx", false},
                                                    {"add_cross_attention", false}};
  for (const auto& [key, plain] : supported)
    if (config.bool_or(key, plain) != plain)
      config.at(key).fail(fmt::format("{} {} is not supported", key, !plain),
                          fmt::format("supported: {}", plain));
}

/// GPT-2's sizes may also stand under the names of other families, as transformers reads them.
int64_t gpt2_size(const Node& config, std::string_view key, std::string_view alias, int64_t fallback,
                  int64_t most) {
  return given(config, key) ? integer_or(config, key, fallback, most)
                            : integer_or(config, alias, fallback, most);
}

Arch parse_gpt2(const Node& config, const Family& family) {
  check_gpt2_variants(config);
  Arch arch;
  arch.model_type = family.model_type;
  arch.naming = Naming::gpt2;
  arch.layer_norm = arch.learned_positions = arch.gelu = true;
  arch.qkv_bias = arch.o_bias = arch.mlp_bias = true;
  arch.vocab = integer_or(config, "vocab_size", family.vocab, hf::kMostVocab);
  arch.hidden = gpt2_size(config, "n_embd", "hidden_size", 768, hf::kMostHidden);
  arch.intermediate = integer_or(config, "n_inner", 4 * arch.hidden, hf::kMostIntermediate);
  arch.layers = gpt2_size(config, "n_layer", "num_hidden_layers", 12, hf::kMostLayers);
  arch.heads = arch.kv_heads = gpt2_size(config, "n_head", "num_attention_heads", 12, hf::kMostHeads);
  if (arch.hidden % arch.heads != 0)
    config.fail(fmt::format("n_embd {} is no multiple of n_head {}", arch.hidden, arch.heads),
                kComparePublisher);
  arch.head_dim = arch.hidden / arch.heads;
  arch.max_positions =
      gpt2_size(config, "n_positions", "max_position_embeddings", family.positions, int64_t{1} << 24);
  arch.norm_eps = positive_or(config, "layer_norm_epsilon", 1e-5);
  arch.tied = config.bool_or("tie_word_embeddings", true);
  arch.initializer_range = positive_or(config, "initializer_range", 0.02);
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    const auto rate = given(config, key);
    arch.dropout = std::max(arch.dropout, rate ? rate->as_double() : 0.1);
  }
  return arch;
}

/// Byte offset of a place in the text that the document was parsed from.
size_t offset_of(std::string_view text, json::Position at) {
  size_t offset = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  for (uint32_t line = 1; line < at.line; ++line) offset = text.find('\n', offset) + 1;
  const auto continues = [&] { return (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80; };
  for (uint32_t column = 1; column < at.column; ++column) {
    ++offset;
    while (continues()) ++offset;
  }
  return offset;
}

/// Byte offset behind the string that begins at `begin`, in a text that was parsed.
size_t end_of_string(std::string_view text, size_t begin) {
  size_t end = begin + 1;
  while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return end + 1;
}

Arch read_config(const Node& config) {
  const Family& family = family_of(config);
  check_architecture(config, family);
  check_variants(config);
  if (family.gpt2_keys) return parse_gpt2(config, family);
  Arch arch;
  arch.model_type = family.model_type;
  arch.vocab = integer_or(config, "vocab_size", family.vocab, hf::kMostVocab);
  arch.hidden = integer_or(config, "hidden_size", 4096, hf::kMostHidden);
  arch.intermediate = integer_or(config, "intermediate_size", family.intermediate, hf::kMostIntermediate);
  arch.layers = integer_or(config, "num_hidden_layers", 32, hf::kMostLayers);
  arch.heads = integer_or(config, "num_attention_heads", 32, hf::kMostHeads);
  arch.kv_heads = kv_heads_of(config, family, arch);
  arch.head_dim = head_dim_of(config, family, arch);
  arch.max_positions = integer_or(config, "max_position_embeddings", family.positions, hf::kMostPositions);
  arch.norm_eps = positive_or(config, "rms_norm_eps", 1e-6);
  arch.tied = config.bool_or("tie_word_embeddings", false);
  arch.initializer_range = positive_or(config, "initializer_range", 0.02);
  arch.rope = hf::read_rope(config, arch.max_positions);
  arch.o_bias = family.attention_bias && config.bool_or("attention_bias", false);
  arch.qkv_bias = family.always_qkv_bias || arch.o_bias;
  arch.mlp_bias = family.mlp_bias && config.bool_or("mlp_bias", false);
  arch.qk_norm = family.qk_norm;
  arch.windows = windows_of(config, family, arch);
  arch.padding_row = padding_row_of(config, arch);
  arch.dropout = dropout_of(config);
  check_heads(config, arch);
  return arch;
}

}  // namespace

json::Document parse_hf_json(std::string_view text, std::string name) {
  return hinted("mend the text there, or download the file again", [&] {
    return json::parse(text, std::move(name), {.status = Status::failed, .non_finite = true, .bom = true});
  });
}

Arch parse_hf_config(const Node& config) {
  return hinted(kComparePublisher, [&] { return read_config(config); });
}

std::string render_hf_config(const json::Value& config, DType dtype) {
  json::Value out = config;
  const auto* type = out.find("model_type");
  ASSERT(type != nullptr && type->is_string(), "a config that was accepted names its model_type");
  const auto family = std::ranges::find(kFamilies, *type->string(), &Family::model_type);
  ASSERT(family != std::end(kFamilies), "a config that was accepted is of a known family");
  out.set("architectures", json::Array{std::string(family->architecture)});
  out.set(out.find("dtype") != nullptr ? "dtype" : "torch_dtype", name_of(dtype));
  return json::dump(out, 2) + "\n";
}

std::string with_stored_dtype(std::string text, const json::Document& document, DType dtype) {
  std::vector<size_t> places;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const json::Value* value = document.root.find(key);
    if (value == nullptr || !value->is_string()) continue;  // absent or null says nothing false
    std::string_view stored = *value->string();
    if (stored.starts_with("torch.")) stored.remove_prefix(6);
    if (stored != name_of(dtype)) places.push_back(offset_of(text, value->at));
  }
  std::ranges::sort(places, std::greater<>());  // from the back, so that earlier places stay
  for (const size_t begin : places) {
    const size_t end = end_of_string(text, begin);
    text.replace(begin, end - begin, fmt::format("\"{}\"", name_of(dtype)));
  }
  return text;
}

}  // namespace tandem
