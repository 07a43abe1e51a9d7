// README's way from a folder and a token file to a fine-tuned model: its config and its commands as they
// stand there, on a tiny model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

struct Page {
  std::string config;
  std::vector<std::string> commands;
};

/// What the section's code blocks hold.
Page fine_tuning_section() {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/README.md");
  Page page;
  bool here = false, json = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) here = line == "## Fine-tune a model";
    if (!here) continue;
    if (json && line == "```") json = false;
    if (json) page.config += line + "\n";
    if (line == "```json") json = true;
    if (line.starts_with("tandem ")) page.commands.push_back(line.substr(0, line.find("  #")));
  }
  return page;
}

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream text(command);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return {words.begin() + 1, words.end()};
}

/// 16 384 uint16 tokens below 256 behind llm.c's header.
std::string llmc_tokens() {
  std::string bytes(1024, '\0');
  const int32_t header[] = {20240520, 1, 16384};
  std::memcpy(bytes.data(), header, sizeof header);
  uint32_t x = 1;
  for (int i = 0; i < 16384; ++i) {
    x = x * 1664525u + 1013904223u;
    bytes += {static_cast<char>((x >> 24) % 16), '\0'};
  }
  return bytes;
}

TEST(ConfigReadme, ItsCommandsFineTuneAModel) {
  const Page page = fine_tuning_section();
  ASSERT_FALSE(page.config.empty());
  ASSERT_GE(page.commands.size(), 8u);
  const TinyRuns runs;
  ASSERT_EQ(
      runs.train("seed", {{"model.config.max_position_embeddings", "512"}}, {"--max-steps", "1"}).status, 0);
  const TemporaryFolder folder;
  std::filesystem::copy(checkpoint_path(runs.path("seed"), 1), folder.path("model"));
  std::filesystem::remove(folder.path("model/state.json"));
  folder.write("tokens.bin", llmc_tokens());
  folder.write("finetune.json", page.config);
  for (const std::string& command : page.commands) {
    const Ran ran = run_tandem(words_of(command), [&] { ASSERT_EQ(chdir(folder.path("").c_str()), 0); });
    EXPECT_EQ(ran.status, 0) << command << "\n" << ran.err;
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path("tuned/model.safetensors")));
}

}  // namespace
}  // namespace tandem
