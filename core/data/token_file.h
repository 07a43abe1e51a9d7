#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/token_format.h"
#include "core/data/token_layout.h"
#include "core/io/file.h"
#include "core/io/hash.h"

namespace tandem {

/// The target of a token that is not trained.
inline constexpr int32_t kNotTrained = -100;

/// The format of that name, as in data.format. Error(usage) for one that is unknown; where: the place of the
/// name, for the message.
TokenFormat token_format(std::string_view name, const std::string& where);

/// The file that the path of a token file stands for: itself, or PATH.idx where only that exists (Megatron's
/// data sets are named without a suffix, too).
std::string token_path(const std::string& path);

/// A file of tokens, read in windows. Opening checks the layout and sizes, not the tokens: those are checked
/// as they are read. Nothing of the file is kept in memory. Serves several threads at once.
class TokenFile {
 public:
  /// vocab: tokens must be below it. Path and format: see open_token_files. Error(usage) when the file does
  /// not exist, else Error(failed).
  TokenFile(const std::string& path, TokenFormat format, int64_t vocab);
  /// That of the tokens.
  [[nodiscard]] const File& file() const { return files_.front(); }
  /// That of the tokens, then a Megatron index. What tokens are read depends on them and nothing else.
  [[nodiscard]] const std::vector<File>& files() const { return files_; }
  [[nodiscard]] const TokenLayout& layout() const { return layout_; }
  [[nodiscard]] uint64_t tokens() const { return layout_.count; }
  /// Fills out with the tokens from `first` on. Error(failed) with file, byte offset and id for a token that
  /// is negative or not below vocab.
  void read(uint64_t first, std::span<int32_t> out) const;
  /// Sets those of the targets, which are the tokens from `first` on, to kNotTrained that the file's mask
  /// takes out of training. Does nothing where the file has no mask.
  void mask(uint64_t first, std::span<int32_t> targets) const;
  /// Reads through the first `bytes` bytes of tokens, or all if there are fewer, so that one that is not
  /// below vocab is found before the run. Costs nothing where no token of this width could be.
  void check_tokens(uint64_t bytes) const;

 private:
  void check_vocab() const;
  std::vector<File> files_;
  TokenLayout layout_;
  int64_t vocab_;
};

/// Which file this is: its size, and the XXH3 of the size and of 64 blocks of 64 KiB spread evenly over the
/// file (first and last included; the whole of a file up to 4 MiB), so that a large file costs 4 MiB of
/// reading. It tells a replaced, appended or truncated file; a change of a few bytes in the middle of a large
/// one it may miss.
FileSum identity_of(const File& file);

}  // namespace tandem
