#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/safetensors.h"

namespace tandem {

/// A tensor and the file that holds it. Both live as long as their SafetensorsSet.
struct LocatedTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
  [[nodiscard]] std::string place() const { return place_of(file->path(), entry->name); }
};

/// The tensors of one purpose in a folder: those of STEM.safetensors, or else those that
/// STEM.safetensors.index.json names, each in the shard that it gives. Construction reads and checks all
/// headers and no data. Error(failed) for: neither there, an index that is none, a shard name that leaves the
/// folder, an absent shard, a tensor that its shard doesn't declare.
class SafetensorsSet {
 public:
  explicit SafetensorsSet(const std::string& folder, const std::string& stem = "model",
                          FileAccess access = FileAccess::sequential);
  [[nodiscard]] const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  [[nodiscard]] const std::map<std::string, LocatedTensor>& tensors() const { return tensors_; }
  /// nullptr if there is none of that name.
  [[nodiscard]] const LocatedTensor* find(const std::string& name) const;
  /// Of the first file.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;
  /// What was left aside although it might have been meant.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void read_single(const std::string& path, FileAccess access);
  void read_shards(const std::string& folder, const std::string& index, FileAccess access);
  void note_ignored_index(const std::string& index);
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, LocatedTensor> tensors_;
  std::vector<std::string> warnings_;
};

/// Sums of written files by name.
using FileSums = std::map<std::string, FileSum>;

/// Writes the tensors as STEM.safetensors, or, if their data have more than shard_limit bytes, as shards of
/// at most so many (a larger tensor gets its own) in the order given, and the index last. Shards and index of
/// an older save that don't belong to this one are removed at the end. Each file is atomic, the set is
/// complete on return: write into a new folder where an older set must survive a crash.
FileSums write_safetensors_set(const std::string& folder, const std::string& stem,
                               const SafetensorsHeader& header, uint64_t shard_limit,
                               const FetchBytes& fetch);

/// "NAME" of at most five names, then how many more.
std::string name_list(const std::vector<std::string>& names);

}  // namespace tandem
