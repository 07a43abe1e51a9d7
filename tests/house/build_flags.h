#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tandem::house {

/// One entry of a compile_commands.json.
struct CompileCommand {
  std::string file;                ///< from the root of the tree: "core/base/error.cpp"
  std::vector<std::string> words;  ///< the command, split at blanks
};

/// The entries of a compile_commands.json as CMake writes it (one member per line) whose files lie under
/// root.
std::vector<CompileCommand> compile_commands(std::string_view json, const std::string& root);

/// What breaks the numeric contract: C++ compiled without -ffp-contract=off, CUDA without its four flags,
/// flags that let the compiler change results, FMA outside the instruction-set files. One line each.
std::vector<std::string> flag_faults(const std::vector<CompileCommand>& commands);

}  // namespace tandem::house
