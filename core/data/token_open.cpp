#include "core/data/token_open.h"

#include <filesystem>
#include <optional>

#include "core/data/token_layout.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool holds_megatron_index(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && is_megatron_index(File(path));
}

/// What the names of a Megatron data set have in common.
std::string megatron_stem(const std::string& path) {
  for (const std::string_view suffix : {".bin", ".idx"})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  return path;
}

/// Whether a path of which nothing was said means a Megatron data set.
bool means_megatron(const std::string& path) {
  if (path.ends_with(".idx")) return exists(path);
  if (path.ends_with(".bin") || !exists(path)) return holds_megatron_index(megatron_stem(path) + ".idx");
  return false;
}

TokenFiles open_megatron(const std::string& path) {
  const std::string stem = megatron_stem(path), index = stem + ".idx", data = stem + ".bin";
  CHECK(exists(index), Status::usage, "a Megatron data set is a .bin and an .idx, and there is no .idx",
        printable(index), "copy it beside the .bin, or set data.format (eval: --format) to what the file is");
  CHECK(exists(data), Status::failed, "a Megatron data set is a .bin and an .idx, and there is no .bin",
        printable(data), "copy it beside the .idx, under the same name");
  TokenFiles found{{}, TokenFormat::megatron};
  found.files.emplace_back(data);
  found.files.emplace_back(index);
  return found;
}

TokenFormat recognised(const File& file) {
  if (is_llmc(file)) return TokenFormat::llmc;
  if (is_llmq(file)) return TokenFormat::llmq;
  const std::string where = printable(file.path());
  CHECK(!is_megatron_index(file), Status::failed, "a Megatron index that is not called .idx", where,
        "give the index and its tokens one name with .idx and .bin");
  const std::string kind = token_file_kind(file);
  CHECK(kind.empty(), Status::failed, fmt::format("no tokens to read: the file is {}", kind), where,
        "write tokens as llm.c (header, uint16 or uint32), nanoGPT (bare uint16) or Megatron (.bin and .idx) "
        "does");
  throw Error(Status::failed, "the file does not say how its tokens are stored (no known magic number)",
              where, "set data.format to \"nanogpt\" (bare uint16) or \"bytes\"; eval --data: --format");
}

}  // namespace

TokenFiles open_token_files(const std::string& path, TokenFormat format) {
  if (format == TokenFormat::megatron || (format == TokenFormat::automatic && means_megatron(path)))
    return open_megatron(path);
  TokenFiles found{{}, format};
  const File& file = found.files.emplace_back(path);
  CHECK(file.size() > 0, Status::failed, "the file is empty", printable(path), "check how it was written");
  if (format == TokenFormat::automatic) found.format = recognised(file);
  return found;
}

}  // namespace tandem
