#include "offload/resume.h"

#include <algorithm>

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

std::unique_ptr<Checkpoint> newest_complete(const RunFolder& folder, const ParamTable& table,
                                            std::vector<std::string>& notes) {
  for (const int64_t step : folder.saved_steps()) {
    try {
      return std::make_unique<Checkpoint>(folder.checkpoint(step), table);
    } catch (const Error& error) {
      notes.push_back(
          fmt::format("skipped the checkpoint of step {}: {} ({})", step, error.message(), error.where()));
    }
  }
  return nullptr;
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

ResumeChoice choose_checkpoint(const RunFolder& folder, const std::optional<std::string>& resume,
                               const ParamTable& table) {
  ResumeChoice choice;
  if (!resume) {
    CHECK(!folder.used(), Status::usage, "the run folder holds a run already", folder.path(),
          "--resume auto goes on with it; another output_dir starts a new one");
    return choice;
  }
  if (*resume != "auto") {
    std::error_code ignored;
    CHECK(fs::exists(*resume, ignored), Status::usage, "there is no checkpoint", *resume,
          "--resume auto, or the path of a step-... folder");
    choice.checkpoint = std::make_unique<Checkpoint>(*resume, table);
    return choice;
  }
  choice.checkpoint = newest_complete(folder, table, choice.notes);
  choice.notes.push_back(choice.checkpoint ? "resuming from " + choice.checkpoint->folder().string()
                                           : "no complete checkpoint to resume from: starting afresh");
  return choice;
}

std::vector<std::string> check_differences(const RunFolder& folder, const Config& config,
                                           const std::vector<std::string>& sets, const Checkpoint& checkpoint,
                                           const std::vector<DataFile>& data) {
  std::vector<std::string> notes;
  std::error_code ignored;
  if (fs::exists(folder.resolved_config(), ignored)) {
    const Config before = load_config(folder.resolved_config());
    for (const Difference& difference : differences(before, config)) {
      CHECK(!binds(difference.key) || named(difference.key, sets), Status::usage,
            fmt::format("{} was {} in the run that is resumed and is {} now", difference.key,
                        difference.before, difference.after),
            config.where(difference.key),
            fmt::format("the old value, or --set {}=... if the change is meant", difference.key));
      notes.push_back(fmt::format("changed: {} was {}, is {} (the new value counts)", difference.key,
                                  difference.before, difference.after));
    }
  }
  const RunState& state = checkpoint.state();
  CHECK(state.seed == config.train.seed || named("train.seed", sets), Status::usage,
        fmt::format("the checkpoint was made with seed {}, the config has {}", state.seed, config.train.seed),
        config.where("train.seed"), "the same seed, or name the change with --set train.seed=...");
  CHECK(state.dtype == config.dtype(), Status::usage,
        fmt::format("the checkpoint trains in {}, the config in {}", name_of(state.dtype),
                    name_of(config.dtype())),
        checkpoint.folder(), "the same dtype, or start a new run with model.path set to this checkpoint");
  check_data(data, state.data, sets);
  return notes;
}

std::vector<DataFile> data_files(const Config& config, const DataSets& data) {
  std::vector<DataFile> files;
  for (size_t i = 0; i < config.data.train.size(); ++i)
    files.push_back({config.data.train[i], identity_of(data.train->files()[i].file())});
  return files;
}

}  // namespace tandem
