#include "tests/cli/train_runs.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "offload/checkpoint.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({
  "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 3, "warmup_type": "linear"}},
  "zero_optimization": {"offload_optimizer": {"device": "cpu", "schedule": "synchronous", "warmup_steps": 4}},
  "model": {"config": {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 32, "tie_word_embeddings": true}},
  "data": {"train": "train.bin", "eval": "eval.bin", "format": "bytes", "sequence_length": 16},
  "train": {"steps": 12, "seed": 3},
  "device": {"kind": "host", "threads": 1}
})";

std::string some_text(size_t bytes, uint32_t seed) {
  std::string text;
  for (uint32_t x = seed; text.size() < bytes; x = x * 1664525u + 1013904223u)
    text += "abcdefgh "[(x >> 24) % 9];
  return text;
}

/// A member with a dotted key, sections made as needed.
void put(json::Value& root, const std::string& key, json::Value value) {
  const size_t dot = key.find('.');
  if (dot == std::string::npos) {
    root.set(key, std::move(value));
    return;
  }
  json::Value* section = root.find(key.substr(0, dot));
  put(section ? *section : root.set(key.substr(0, dot), json::Object{}), key.substr(dot + 1),
      std::move(value));
}

std::string read(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> chosen(const std::string& run, bool evaluations,
                                std::initializer_list<const char*> fields) {
  std::vector<std::string> out;
  for (const json::Value& line : metrics_of(run)) {
    if ((line.find("eval") != nullptr) != evaluations) continue;
    json::Value kept;
    for (const char* field : fields) kept.set(field, *line.find(field));
    out.push_back(json::dump(kept));
  }
  return out;
}

}  // namespace

TinyRuns::TinyRuns() {
  folder_.write("train.bin", some_text(10 * 16 + 1, 1));
  folder_.write("eval.bin", some_text(7 * 16 + 1, 2));
}

std::string TinyRuns::config(const std::string& name, const Keys& keys) const {
  json::Document document = json::parse(kConfig, "config");
  put(document.root, "output_dir", path(name));
  for (const auto& [key, value] : keys) put(document.root, key, json::parse(value, key).root);
  return folder_.write(name + ".json", json::dump(document.root, 2));
}

Ran TinyRuns::train(const std::string& name, const Keys& keys,
                    const std::vector<std::string>& options) const {
  std::vector<std::string> arguments{"train", config(name, keys)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_tandem(arguments);
}

Ran run_watched(const std::vector<std::string>& arguments, const std::function<void(pid_t)>& act) {
  auto* const process = static_cast<std::atomic<pid_t>*>(
      mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::future<Ran> ran = std::async(
      std::launch::async, [&] { return run_tandem(arguments, [process] { *process = getpid(); }); });
  while (*process == 0) std::this_thread::yield();
  act(*process);
  Ran result = ran.get();
  munmap(process, sizeof(std::atomic<pid_t>));
  return result;
}

bool wait_for(pid_t process, const std::function<bool()>& condition) {
  while (!condition()) {
    if (kill(process, 0) != 0) return condition();
    usleep(200);
  }
  return true;
}

std::vector<json::Value> metrics_of(const std::string& run) {
  std::vector<json::Value> lines;
  std::ifstream in(run + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line, "metrics").root);
  return lines;
}

size_t count_lines(const std::string& path) {
  const std::string text = read(path);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::vector<std::string> computed(const std::string& run) {
  return chosen(run, false,
                {"step", "updates", "epoch", "loss", "tokens", "grad_norm", "clip_coef", "lr", "loss_scale",
                 "skipped", "version_lag"});
}

std::vector<std::string> evaluated(const std::string& run) {
  return chosen(run, true, {"step", "eval_loss", "eval_tokens", "eval_version"});
}

std::string checkpoint_path(const std::string& run, int64_t step) {
  return run + "/checkpoints/" + fmt::format("step-{:08d}", step);
}

std::map<std::string, std::string> content_of(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(checkpoint)) {
    const std::string name = fs::relative(entry.path(), checkpoint);
    if (!entry.is_regular_file()) continue;
    files[name] = read(entry.path());
    if (name != "state.json") continue;
    json::Value state = json::parse(files[name], name).root;
    std::erase_if(*state.object(), [](const json::Member& member) {
      return member.key == "config_hash" || member.key == "xxh3";
    });
    files[name] = json::dump(state, 1);
  }
  return files;
}

void expect_same_checkpoint(const std::string& a, const std::string& b) {
  ASSERT_TRUE(is_complete(a)) << a;
  ASSERT_TRUE(is_complete(b)) << b;
  const auto files = content_of(a), others = content_of(b);
  std::vector<std::string> names, other_names;
  for (const auto& [name, text] : files) names.push_back(name);
  for (const auto& [name, text] : others) other_names.push_back(name);
  ASSERT_EQ(names, other_names);
  EXPECT_EQ(files.at("state.json"), others.at("state.json"));
  for (const auto& [name, text] : files) EXPECT_TRUE(text == others.at(name)) << name << " differs";
}

std::vector<std::string> litter_in(const std::string& run) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run))
    if (entry.path().filename().string().starts_with(".")) found.push_back(entry.path());
  return found;
}

bool is_complete(const std::string& checkpoint) {
  try {
    const Checkpoint opened(checkpoint);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tandem
