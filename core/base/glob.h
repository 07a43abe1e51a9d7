#pragma once
#include <string_view>

namespace tandem {

/// True if the whole text matches the pattern: '*' any run of characters (dots too), '?' one character.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace tandem
