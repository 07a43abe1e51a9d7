#pragma once
#include <string>
#include <vector>

#include "tests/house/source_tree.h"

namespace tandem::house {

/// What is wrong with the includes and compiler switches of the files, one line each ("FILE:LINE: ..."):
/// arrows between rooms, libraries outside their place, includes that don't name a room or a file of the
/// tree, #if outside the few places that may differ between compilers. Looks at the four rooms; tests and
/// bench may see everything.
std::vector<std::string> layering_faults(const std::vector<SourceFile>& files);

}  // namespace tandem::house
