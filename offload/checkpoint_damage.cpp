#include "offload/checkpoint_damage.h"

#include "offload/run_folder.h"

namespace tandem {

namespace {

constexpr const char* kUseAnother =
    "use an older checkpoint (--resume auto takes the newest whole one), or copy this one again";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Error(failed) if the file is not the one that state.json names.
void check_file(const fs::path& path, const FileSum& expected) {
  CHECK(is_there(path), Status::failed, "this file of the checkpoint is missing", printable(path.string()),
        kUseAnother);
  const File file(path, Status::failed, FileAccess::sequential);
  CHECK(file.size() == expected.bytes, Status::failed,
        fmt::format("the file has {} bytes where the checkpoint wrote {}", file.size(), expected.bytes),
        printable(path.string()), kUseAnother);
  CHECK(sum_of(file) == expected, Status::failed, "the file's content is not what the checkpoint wrote",
        printable(path.string()), kUseAnother);
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  return is_there(folder / kStateFile) || is_there(folder / kOptimizerFolder);
}

bool is_run(const fs::path& folder) {
  return !is_checkpoint(folder) && !is_there(folder / "config.json") && RunFolder(folder).used();
}

CheckedCheckpoint check_checkpoint(const fs::path& folder, CheckedFiles files) {
  CheckedCheckpoint checked;
  const auto collect = [&](const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      checked.damage.push_back(error);
    }
  };
  collect([&] {
    CHECK(is_there(folder / kStateFile), Status::failed, "the checkpoint is incomplete: it has no state.json",
          printable(folder.string()), kUseAnother);
    const json::Document document = json::parse_file(folder / kStateFile, {.status = Status::failed});
    checked.parsed = parse_state(json::Node(document));
  });
  if (!checked.parsed) return checked;
  for (const auto& [name, sum] : checked.parsed->files)
    if (files == CheckedFiles::all || name.starts_with("model"))
      collect([&, &name = name, &sum = sum] { check_file(folder / name, sum); });
  return checked;
}

void refuse_damaged_weights(const fs::path& folder) {
  if (!is_there(folder / kStateFile)) return;
  const CheckedCheckpoint checked = check_checkpoint(folder, CheckedFiles::weights);
  if (!checked.damage.empty()) throw checked.damage.front();
}

}  // namespace tandem
