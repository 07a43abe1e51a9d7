#include "tests/house/build_flags.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/house/source_tree.h"

namespace tandem::house {

namespace {

/// Flags that let the compiler reorder, contract or approximate, or that make results depend on the build
/// machine.
const std::vector<std::string> kForbidden = {"-ffast-math",
                                             "-Ofast",
                                             "-funsafe-math-optimizations",
                                             "-fassociative-math",
                                             "-freciprocal-math",
                                             "-ffinite-math-only",
                                             "-fno-signed-zeros",
                                             "-fno-rounding-math",
                                             "-fexcess-precision=fast",
                                             "-mdaz-ftz",
                                             "-march=native",
                                             "-mtune=native",
                                             "-ffp-contract=fast",
                                             "-ffp-contract=on"};

/// What nvcc must be told: no contraction, denormals kept, division and root correctly rounded.
const std::vector<std::string> kCuda = {"-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"};
const std::vector<std::string> kForbiddenCuda = {"-use_fast_math", "--use_fast_math", "-fmad=true",
                                                 "-ftz=true",      "-prec-div=false", "-prec-sqrt=false"};

/// Flags that bring fused multiply-add with them.
const std::vector<std::string> kFma = {"-mfma", "-mavx512", "-march="};

/// The value of `"key": "value"` on a line of its own, escapes undone; empty if the line has another key.
std::string member(std::string_view line, const std::string& key) {
  const std::string opening = "\"" + key + "\": \"";
  const size_t at = line.find(opening);
  const size_t end = line.rfind('"');
  std::string value;
  if (at == std::string_view::npos) return value;
  for (size_t i = at + opening.size(); i < end; ++i) {
    if (line[i] == '\\') ++i;
    value += line[i];
  }
  return value;
}

std::vector<std::string> split(const std::string& command) {
  std::istringstream in(command);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::vector<CompileCommand> compile_commands(std::string_view json, const std::string& root) {
  std::vector<CompileCommand> commands;
  std::vector<std::string> words;
  for (const std::string_view line : lines_of(json)) {
    const std::string command = member(line, "command");
    if (!command.empty()) words = split(command);
    const std::string file = member(line, "file");
    if (file.starts_with(root + "/")) commands.push_back({file.substr(root.size() + 1), words});
  }
  return commands;
}

std::vector<std::string> flag_faults(const std::vector<CompileCommand>& commands) {
  std::vector<std::string> faults;
  for (const CompileCommand& command : commands) {
    const auto has = [&](const std::string& flag) {
      return std::find(command.words.begin(), command.words.end(), flag) != command.words.end();
    };
    if (command.file.ends_with(".cu")) {
      for (const std::string& flag : kCuda)
        if (!has(flag)) faults.push_back(command.file + " is compiled without " + flag);
      for (const std::string& flag : kForbiddenCuda)
        if (has(flag)) faults.push_back(command.file + " is compiled with " + flag);
    }
    if (!command.file.ends_with(".cpp")) continue;
    if (!has("-ffp-contract=off")) faults.push_back(command.file + " is compiled without -ffp-contract=off");
    for (const std::string& flag : kForbidden)
      if (has(flag)) faults.push_back(command.file + " is compiled with " + flag);
    if (command.file.find("/isa/") != std::string::npos) continue;
    for (const std::string& word : command.words)
      for (const std::string& flag : kFma)
        if (word.starts_with(flag))
          faults.push_back(command.file + " is no ISA file and is compiled with " + word);
  }
  return faults;
}

}  // namespace tandem::house
