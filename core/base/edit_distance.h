#pragma once
#include <cstddef>
#include <string_view>

namespace tandem {

/// Insertions, deletions and replacements of one character that turn a into b (Levenshtein 1966); a
/// replacement counts replace_cost, so with 2 it is no shorter way than to delete and insert. Both are short
/// names: the work is the product of their lengths.
size_t edit_distance(std::string_view a, std::string_view b, size_t replace_cost = 1);

}  // namespace tandem
