#include "tests/house/source_tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace tandem::house {

namespace {

namespace fs = std::filesystem;

constexpr std::array kRoots = {"core",  "cpu_adam",       "gpu",       "offload",          "tests",
                               "bench", "cmake",          "docs",      "configs",          ".ci",
                               "dev",   "CMakeLists.txt", "README.md", "CMakePresets.json"};
constexpr std::array kText = {".h",     ".cpp", ".cu", ".cuh", ".inc",  ".txt",
                              ".cmake", ".py",  ".sh", ".md",  ".json", ""};

SourceFile read(const fs::path& root, const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {path.lexically_relative(root).generic_string(), {std::istreambuf_iterator<char>(in), {}}};
}

bool is_text(const fs::path& path) {
  return fs::is_regular_file(path) && std::find(kText.begin(), kText.end(), path.extension()) != kText.end();
}

}  // namespace

std::vector<SourceFile> source_tree() {
  const fs::path root = TANDEM_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const char* name : kRoots) {
    if (fs::is_directory(root / name)) {
      for (const auto& entry : fs::recursive_directory_iterator(root / name))
        if (is_text(entry.path())) files.push_back(read(root, entry.path()));
    } else if (fs::exists(root / name)) {
      files.push_back(read(root, root / name));
    }
  }
  return files;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& faults) {
  std::string text;
  for (const std::string& fault : faults) text += fault + "\n";
  return text;
}

}  // namespace tandem::house
