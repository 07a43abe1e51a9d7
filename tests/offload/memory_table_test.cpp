// README's table of what fits: computed from the plan of the step that would run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/io/hf_config.h"
#include "offload/memory_plan.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

/// Published models by the keys of their config.json that decide sizes.
struct Published {
  const char *name, *config;
};
constexpr Published kModels[] = {
    {"Qwen2.5-0.5B", R"({"model_type":"qwen2","vocab_size":151936,"hidden_size":896,"intermediate_size":4864,
      "num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,"tie_word_embeddings":true})"},
    {"Llama-3.2-1B", R"({"model_type":"llama","vocab_size":128256,"hidden_size":2048,"intermediate_size":8192,
      "num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,
      "max_position_embeddings":131072,"tie_word_embeddings":true})"},
    {"Qwen2.5-1.5B", R"({"model_type":"qwen2","vocab_size":151936,"hidden_size":1536,"intermediate_size":8960,
      "num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"tie_word_embeddings":true})"},
    {"Llama-3.2-3B", R"({"model_type":"llama","vocab_size":128256,"hidden_size":3072,"intermediate_size":8192,
      "num_hidden_layers":28,"num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,
      "max_position_embeddings":131072,"tie_word_embeddings":true})"},
    {"Qwen3-4B", R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":2560,"intermediate_size":9728,
      "num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"tie_word_embeddings":true})"},
    {"Mistral-7B", R"({"model_type":"mistral","vocab_size":32768,"hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"sliding_window":null})"},
    {"Qwen2.5-7B", R"({"model_type":"qwen2","vocab_size":152064,"hidden_size":3584,"intermediate_size":18944,
      "num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4})"},
    {"Llama-3.1-8B",
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
      "max_position_embeddings":131072})"},
    {"Qwen3-14B", R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":5120,"intermediate_size":17408,
      "num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":8})"},
};

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string smallest_of(std::initializer_list<int> sizes, double need) {
  for (const int size : sizes)
    if (need <= size) return fmt::format("{} GB", size);
  return "more";
}

/// bf16, 4 sequences of 2048 tokens a step as 4 micro-batches, recompute, optimizer on the host.
std::string row_of(const Published& model) {
  const json::Document document = parse_hf_json(model.config, model.name);
  testing::EngineOptions options;
  options.arch = parse_hf_config(json::Node(document));
  options.dtype = DType::bf16;
  options.micro_batches = 4;
  options.length = 2048;
  const ParamTable table(options.arch);
  const auto plan = [&](Schedule schedule) {
    options.policy.schedule = schedule;
    return plan_memory(setup_of(options, table), table);
  };
  const MemoryPlan exact = plan(Schedule::exact), delayed = plan(Schedule::delayed);
  const auto gib = [](size_t bytes) { return static_cast<double>(bytes) / kGiB; };
  const double device = gib(exact.device_bytes()), host = gib(exact.host_bytes()),
               late = gib(delayed.host_bytes());
  // A card keeps 1 GiB for its context and the reserve, the system 4 GiB for itself and the file cache.
  return fmt::format("| {} | {:.2f} | {:.1f} | {} | {:.1f} | {} | {:.1f} | {} |", model.name,
                     static_cast<double>(table.parameter_count()) * 1e-9, device,
                     smallest_of({16, 24, 32}, device + 1), host, smallest_of({64, 128, 192, 256}, host + 4),
                     late, smallest_of({64, 128, 192, 256}, late + 4));
}

TEST(MemoryTable, OfTheReadmeIsThePlans) {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/README.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const Published& model : kModels) {
    const std::string row = row_of(model);
    EXPECT_NE(text.str().find(row), std::string::npos) << "README.md should say\n" << row;
  }
}

}  // namespace
}  // namespace tandem
