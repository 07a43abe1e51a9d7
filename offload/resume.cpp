#include "offload/resume.h"

#include <algorithm>

#include "core/io/model_folder.h"

namespace tandem {

namespace {

/// Keys that decide what the run computes from its first step on: a resumed run may change them only by name.
bool binds(const std::string& key) {
  constexpr std::string_view kBinding[] = {"train.seed",   "data.train",      "data.format",
                                           "data.shuffle", "data.eval_split", "data.sequence_length"};
  const auto same = [&](std::string_view name) {
    return key == name || key.starts_with(std::string(name) + "[");
  };
  return std::any_of(std::begin(kBinding), std::end(kBinding), same) || key == "model.config" ||
         key.starts_with("model.config.");
}

bool named(const std::string& key, const std::vector<std::string>& sets) {
  return std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
    const std::string name = set.substr(0, set.find('='));
    return key == name || key.starts_with(name + ".") || key.starts_with(name + "[") ||
           name.starts_with(key + ".");
  });
}

/// Null where there is none. A run whose whole checkpoints are all without states is not started again.
std::unique_ptr<Checkpoint> newest_complete(const RunFolder& folder, std::vector<std::string>& warnings) {
  std::optional<NoStatesError> no_states;
  for (const int64_t step : folder.saved_steps()) {
    try {
      return std::make_unique<Checkpoint>(folder.checkpoint(step));
    } catch (const NoStatesError& error) {
      if (!no_states) no_states = error;
    } catch (const Error& error) {
      warnings.push_back(fmt::format("warning: skipped the checkpoint of step {}: {} ({})", step,
                                     error.message(), error.where()));
    }
  }
  if (no_states) throw *no_states;
  return nullptr;
}

std::unique_ptr<Checkpoint> open_named(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  CHECK(!error, Status::usage, "there is no checkpoint", path,
        "--resume auto, or the path of a step-... folder");
  return std::make_unique<Checkpoint>(real);
}

std::string step_list(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += (text.empty() ? "" : ", ") + std::to_string(step);
  return text;
}

/// The steps of the folder's checkpoints that the run will not have come through: they must not be taken for
/// its newest ones. Those of another course of the run may go; where the checkpoint comes from outside, they
/// may be another run's.
std::vector<int64_t> steps_beyond(const RunFolder& folder, const Checkpoint& checkpoint) {
  std::vector<int64_t> beyond = folder.saved_steps();
  std::erase_if(beyond, [&](int64_t step) { return step <= checkpoint.state().step; });
  std::error_code ignored;
  CHECK(beyond.empty() || fs::equivalent(checkpoint.folder().parent_path(), folder.checkpoints(), ignored),
        Status::usage,
        fmt::format("the run folder holds checkpoints of later steps ({}) than the one to resume from, "
                    "which lies elsewhere",
                    step_list(beyond)),
        folder.path().string(), "another output_dir, or remove those checkpoints first");
  return beyond;
}

/// The config that the checkpoint's run had last.
std::optional<fs::path> config_of(const Checkpoint& checkpoint, const RunFolder& folder) {
  std::error_code ignored;
  const RunFolder own(checkpoint.folder().parent_path().parent_path());
  for (const fs::path& path : {own.resolved_config(), folder.resolved_config()})
    if (fs::exists(path, ignored)) return path;
  return std::nullopt;
}

std::vector<std::string> check_config(const Config& before, const Config& config,
                                      const std::vector<std::string>& sets) {
  std::vector<std::string> notes;
  for (const Difference& difference : differences(before, config)) {
    CHECK(!binds(difference.key) || named(difference.key, sets), Status::usage,
          fmt::format("{} was {} in the run that is resumed and is {} now", difference.key, difference.before,
                      difference.after),
          config.where(difference.key),
          fmt::format("the old value, or --set {}=... if the change is meant", difference.key));
    notes.push_back(fmt::format("changed: {} was {}, is {} (the new value counts)", difference.key,
                                difference.before, difference.after));
  }
  return notes;
}

/// What decides the function that a model computes, by config.json's keys.
std::vector<std::pair<std::string, std::string>> facts_of(const Arch& a) {
  const auto text = [](auto value) { return json::dump(json::Value(value)); };
  return {{"model_type", a.model_type},
          {"vocab_size", text(a.vocab)},
          {"hidden_size", text(a.hidden)},
          {"intermediate_size", text(a.intermediate)},
          {"num_hidden_layers", text(a.layers)},
          {"num_attention_heads", text(a.heads)},
          {"num_key_value_heads", text(a.kv_heads)},
          {"head_dim", text(a.head_dim)},
          {"max_position_embeddings", text(a.max_positions)},
          {"rms_norm_eps", text(a.norm_eps)},
          {"tie_word_embeddings", text(a.tied)},
          {"rope_theta", text(a.rope.theta)},
          {"rope type", text(static_cast<int>(a.rope.scaling))},
          {"rope factor", text(a.rope.factor)},
          {"rope low_freq_factor", text(a.rope.low_freq_factor)},
          {"rope high_freq_factor", text(a.rope.high_freq_factor)},
          {"rope original_max_position_embeddings", text(a.rope.original_max_position)}};
}

/// The checkpoint's own config.json against the model of the config, whose files may have changed unseen.
void check_model(const Config& config, const Arch& arch, const std::vector<std::string>& sets,
                 const Checkpoint& checkpoint) {
  const std::string key = config.model.path ? "model.path" : "model.config";
  if (named(key, sets)) return;
  const auto then = facts_of(read_arch(checkpoint.folder())), now = facts_of(arch);
  for (size_t i = 0; i < now.size(); ++i)
    CHECK(then[i] == now[i], Status::usage,
          fmt::format("the model's {} was {} in the run that is resumed and is {} now", now[i].first,
                      then[i].second, now[i].second),
          config.where(key), fmt::format("the old model, or --set {}=... if the change is meant", key));
}

void check_data(const std::vector<DataFile>& now, const std::vector<DataFile>& then,
                const std::vector<std::string>& sets) {
  if (named("data.train", sets)) return;
  CHECK(
      now.size() == then.size(), Status::usage,
      fmt::format("the checkpoint was made with {} data files, the config names {}", then.size(), now.size()),
      "data.train", "the same files, or name the change with --set data.train=...");
  for (size_t i = 0; i < now.size(); ++i)
    CHECK(
        now[i].sum == then[i].sum, Status::usage,
        fmt::format("the data file is not the one that the checkpoint was made with ({} bytes then, {} now)",
                    then[i].sum.bytes, now[i].sum.bytes),
        now[i].path, "the same file, or name the change with --set data.train=...");
}

}  // namespace

ResumeChoice choose_checkpoint(const RunFolder& folder, const std::optional<std::string>& resume) {
  ResumeChoice choice;
  if (!resume) {
    CHECK(!folder.used(), Status::usage, "the run folder holds a run already", folder.path(),
          "--resume auto goes on with it; another output_dir starts a new one");
    return choice;
  }
  choice.checkpoint = *resume == "auto" ? newest_complete(folder, choice.warnings) : open_named(*resume);
  if (!choice.checkpoint) {
    choice.abandoned = folder.saved_steps();
    choice.notes.push_back("no complete checkpoint to resume from: starting afresh");
    return choice;
  }
  choice.notes.push_back("resuming from " + choice.checkpoint->folder().string());
  choice.abandoned = steps_beyond(folder, *choice.checkpoint);
  if (!choice.abandoned.empty())
    choice.notes.push_back(
        fmt::format("the checkpoints of later steps ({}) are left aside; the next save removes them",
                    step_list(choice.abandoned)));
  return choice;
}

std::vector<std::string> check_differences(const RunFolder& folder, const Config& config, const Arch& arch,
                                           const std::vector<std::string>& sets, const Checkpoint& checkpoint,
                                           const std::vector<DataFile>& data) {
  std::vector<std::string> notes;
  if (const auto before = config_of(checkpoint, folder))
    notes = check_config(load_config(*before), config, sets);
  const RunState& state = checkpoint.state();
  CHECK(state.seed == config.train.seed || named("train.seed", sets), Status::usage,
        fmt::format("the checkpoint was made with seed {}, the config has {}", state.seed, config.train.seed),
        config.where("train.seed"), "the same seed, or name the change with --set train.seed=...");
  CHECK(state.dtype == config.dtype(), Status::usage,
        fmt::format("the checkpoint trains in {}, the config in {}", name_of(state.dtype),
                    name_of(config.dtype())),
        checkpoint.folder(), "the same dtype, or start a new run with model.path set to this checkpoint");
  check_model(config, arch, sets, checkpoint);
  check_data(data, state.data, sets);
  return notes;
}

std::vector<DataFile> data_files(const DataSets& data) {
  std::vector<DataFile> files;
  for (const TokenFile& tokens : data.train->files())
    for (const File& file : tokens.files()) files.push_back({file.path(), identity_of(file)});
  return files;
}

}  // namespace tandem
