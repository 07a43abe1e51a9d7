#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tandem::house {

/// One text file of the project.
struct SourceFile {
  std::string path;  ///< from the root of the tree: "core/base/tensor.h"
  std::string text;
};

/// Every text file that belongs to the project: sources, build files, scripts, pages. Without build/ and
/// runs/.
std::vector<SourceFile> source_tree();

/// The lines of a text.
std::vector<std::string_view> lines_of(std::string_view text);

/// One fault per line, for test messages.
std::string joined(const std::vector<std::string>& faults);

}  // namespace tandem::house
