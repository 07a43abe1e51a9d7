#pragma once
#include <string>
#include <vector>

#include "core/data/token_format.h"
#include "core/io/file.h"

namespace tandem {

/// The files of a token data set and how they are laid out.
struct TokenFiles {
  std::vector<File> files;  ///< that of the tokens, then the index that describes it where there is one
  TokenFormat format;       ///< never automatic
};

/// Finds and opens them by the path that a user gave. Megatron's may be the .bin, the .idx or what stands
/// before these. automatic: by the magic; a .bin beside a Megatron index is Megatron's. Error(usage) when
/// nothing is there, Error(failed) for an empty file, or one that automatic does not know.
TokenFiles open_token_files(const std::string& path, TokenFormat format);

}  // namespace tandem
