#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/data/token_format.h"
#include "core/io/file.h"
#include "core/io/hash.h"

namespace tandem {

/// The format of that name, as in data.format. Error(usage) for a name that is unknown or not read yet;
/// where: the place of the name, for the message.
TokenFormat token_format(std::string_view name, const std::string& where);

/// A file of tokens, read in windows. Opening checks the layout and sizes, not the tokens: those are checked
/// as they are read. Nothing of the file is kept in memory. Serves several threads at once.
class TokenFile {
 public:
  /// vocab: tokens must be below it. Error(usage) when the file does not exist, else Error(failed).
  TokenFile(std::string path, TokenFormat format, int64_t vocab);
  [[nodiscard]] const File& file() const { return file_; }
  [[nodiscard]] uint64_t tokens() const { return tokens_; }
  /// Fills out with the tokens from `first` on. Error(failed) with file, byte offset and id for a token that
  /// is not below vocab.
  void read(uint64_t first, std::span<int32_t> out) const;
  /// Reads through the first `bytes` bytes of tokens, or all if there are fewer, so that one that is not
  /// below vocab is found before the run. Costs nothing where no token of this width could be.
  void check_tokens(uint64_t bytes) const;

 private:
  void open_llmc();
  void open_bare(uint64_t token_bytes);
  void check_vocab() const;
  File file_;
  int64_t vocab_;
  uint64_t begin_ = 0;        ///< byte of the first token
  uint64_t token_bytes_ = 0;  ///< 1, 2 or 4
  uint64_t tokens_ = 0;
};

/// Which file this is: its size, and the XXH3 of the size and of 64 blocks of 64 KiB spread evenly over the
/// file (first and last included; the whole of a file up to 4 MiB), so that a large file costs 4 MiB of
/// reading. It tells a replaced, appended or truncated file; a change of a few bytes in the middle of a large
/// one it may miss.
FileSum identity_of(const File& file);

}  // namespace tandem
