#include "core/io/safetensors_set.h"

#include <algorithm>
#include <filesystem>

#include "core/base/glob.h"
#include "core/io/json.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDownloadAgain = "download the model again, all files of it";

/// A name is there, be it a dangling link.
bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

/// Names of files in the folder that match a glob, sorted.
std::vector<std::string> names_like(const std::string& folder, std::string_view glob) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (glob_matches(glob, entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

Error no_weights(const std::string& folder, const std::string& stem) {
  std::string hint = kDownloadAgain;
  for (const char* glob : {"*.gguf", "*.pth", "*.bin"})
    if (const auto other = names_like(folder, glob); !other.empty())
      hint = fmt::format("convert {} with save_pretrained(safe_serialization=True)", name_list(other));
  if (const auto other = names_like(folder, "*.safetensors"); !other.empty())
    hint = fmt::format(
        "the folder holds {}: name a single file {}.safetensors, or download the index of the shards",
        name_list(other), stem);
  return {Status::failed,
          fmt::format("no weights: neither {0}.safetensors nor {0}.safetensors.index.json", stem),
          printable(folder), hint};
}

/// Tensor name -> shard name, as the index gives them.
std::map<std::string, std::string> weight_map(const std::string& index) {
  const json::Document document = json::parse(read_text(index, 128 << 20, Status::failed), index,
                                              {.status = Status::failed, .non_finite = true, .bom = true});
  const json::Node root(document);
  const auto map = root.find("weight_map");
  if (!map) root.fail("the index has no \"weight_map\"", kDownloadAgain);
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map->members()) shards.emplace(tensor, shard.as_string());
  return shards;
}

/// Shards lie in the folder of their index and nowhere else.
void check_shard_name(const std::string& index, const std::string& tensor, const std::string& shard) {
  constexpr std::string_view kNever("/\\\0", 3);
  const bool plain = !shard.empty() && shard != "." && shard.find_first_of(kNever) == std::string::npos &&
                     shard.find("..") == std::string::npos;
  CHECK(plain, Status::failed, fmt::format("the shard name \"{}\" is no plain file name", printable(shard)),
        place_of(index, tensor), "don't use this checkpoint: its index points outside its folder");
}

void check_shards_exist(const std::string& folder, const std::string& index,
                        const std::map<std::string, std::string>& shards) {
  std::vector<std::string> missing;
  for (const auto& [tensor, shard] : shards)
    if (!is_there(folder + "/" + shard) && std::ranges::find(missing, shard) == missing.end())
      missing.push_back(shard);
  CHECK(missing.empty(), Status::failed,
        fmt::format("{} shard(s) that the index names are not there: {}", missing.size(), name_list(missing)),
        printable(index), "download the missing files into the same folder");
}

}  // namespace

SafetensorsSet::SafetensorsSet(const std::string& folder, const std::string& stem, FileAccess access) {
  const std::string single = folder + "/" + stem + ".safetensors", index = single + ".index.json";
  if (is_there(single)) {
    read_single(single, access);
    if (is_there(index)) note_ignored_index(index);
  } else {
    if (!is_there(index)) throw no_weights(folder, stem);
    read_shards(folder, index, access);
  }
}

const LocatedTensor* SafetensorsSet::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const std::map<std::string, std::string>& SafetensorsSet::metadata() const {
  return files_.front()->metadata();
}

void SafetensorsSet::read_single(const std::string& path, FileAccess access) {
  const auto& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path, access));
  for (const SafetensorsEntry& entry : file.entries())
    tensors_.emplace(entry.name, LocatedTensor{&file, &entry});
}

void SafetensorsSet::read_shards(const std::string& folder, const std::string& index, FileAccess access) {
  const auto shards = hinted(kDownloadAgain, [&] { return weight_map(index); });
  CHECK(!shards.empty(), Status::failed, "the index names no tensors", printable(index), kDownloadAgain);
  for (const auto& [tensor, shard] : shards) check_shard_name(index, tensor, shard);
  check_shards_exist(folder, index, shards);
  std::map<std::string, const SafetensorsFile*> open;
  for (const auto& [tensor, shard] : shards) {
    const SafetensorsFile*& file = open[shard];
    if (file == nullptr)
      file = files_.emplace_back(std::make_unique<SafetensorsFile>(folder + "/" + shard, access)).get();
    const SafetensorsEntry* entry = file->find(tensor);
    CHECK(entry != nullptr, Status::failed,
          fmt::format("the index places this tensor in {}, which doesn't hold it", printable(shard)),
          place_of(index, tensor), kDownloadAgain);
    tensors_.emplace(tensor, LocatedTensor{file, entry});
  }
  std::vector<std::string> unnamed;
  for (const auto& file : files_)
    for (const SafetensorsEntry& entry : file->entries())
      if (const LocatedTensor* used = find(entry.name); used == nullptr || used->entry != &entry)
        unnamed.push_back(entry.name);
  if (!unnamed.empty())
    warnings_.push_back(fmt::format("ignored: tensors that {} doesn't place in their shard: {}",
                                    printable(index), name_list(unnamed)));
}

void SafetensorsSet::note_ignored_index(const std::string& index) {
  std::string warning = fmt::format("{} is read; {} is ignored", printable(files_.front()->path()),
                                    printable(fs::path(index).filename().string()));
  try {
    std::vector<std::string> absent;
    for (const auto& [tensor, shard] : weight_map(index))
      if (find(tensor) == nullptr) absent.push_back(tensor);
    if (!absent.empty())
      warning += ", though it names tensors that the file doesn't hold: " + name_list(absent);
  } catch (const Error& error) {
    warning += " (it is broken: " + error.message() + ")";
  }
  warnings_.push_back(std::move(warning));
}

namespace {

/// Entries per shard, in order, each shard within the limit where its first tensor is.
std::vector<std::vector<SafetensorsEntry>> cut(const std::vector<SafetensorsEntry>& entries, uint64_t limit) {
  std::vector<std::vector<SafetensorsEntry>> shards;
  uint64_t filled = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (shards.empty() || filled + entry.bytes > limit) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(entry);
    filled += entry.bytes;
  }
  return shards;
}

std::string render_index(const std::map<std::string, std::string>& shard_of, uint64_t total) {
  json::Object map;
  for (const auto& [tensor, shard] : shard_of) map.push_back({tensor, shard});
  const json::Value index =
      json::Object{{"metadata", json::Object{{"total_size", total}}}, {"weight_map", std::move(map)}};
  return json::dump(index, 2) + "\n";
}

FileSums write_shards(const std::string& folder, const std::string& stem, const SafetensorsHeader& header,
                      uint64_t limit, const FetchBytes& fetch) {
  FileSums sums;
  std::map<std::string, std::string> shard_of;
  uint64_t total = 0;
  const auto shards = cut(header.entries, limit);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size());
    sums[name] = write_safetensors(folder + "/" + name, {shards[i], header.metadata}, fetch);
    for (const SafetensorsEntry& entry : shards[i]) {
      shard_of[entry.name] = name;
      total += entry.bytes;
    }
  }
  const std::string index = stem + ".safetensors.index.json";
  sums[index] = write_atomically(folder + "/" + index, render_index(shard_of, total));
  return sums;
}

/// Files of an older save that would stand beside the new one.
void remove_stale(const std::string& folder, const std::string& stem, const FileSums& written) {
  std::vector<std::string> stale = names_like(folder, stem + "-*-of-*.safetensors");
  stale.push_back(stem + ".safetensors.index.json");
  stale.push_back(stem + ".safetensors");
  for (const std::string& name : stale)
    if (std::error_code ignored; !written.contains(name)) fs::remove(folder + "/" + name, ignored);
}

}  // namespace

FileSums write_safetensors_set(const std::string& folder, const std::string& stem,
                               const SafetensorsHeader& header, uint64_t shard_limit,
                               const FetchBytes& fetch) {
  SafetensorsHeader sized = header;
  uint64_t total = 0;
  for (SafetensorsEntry& entry : sized.entries) total += entry.bytes = bytes_needed(entry, folder);
  FileSums sums;
  if (total <= shard_limit) {
    const std::string name = stem + ".safetensors";
    sums[name] = write_safetensors(folder + "/" + name, std::move(sized), fetch);
  } else {
    sums = write_shards(folder, stem, sized, shard_limit, fetch);
  }
  remove_stale(folder, stem, sums);
  return sums;
}

std::string name_list(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", printable(names[i]));
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

}  // namespace tandem
