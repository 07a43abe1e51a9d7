#include <gtest/gtest.h>

#include <filesystem>

#include "tests/house/source_tree.h"

namespace tandem::house {
namespace {

constexpr size_t kMostLines = 500;

/// Hand-written files; goldens and the like are data.
bool is_written_by_hand(const std::string& path) {
  return std::filesystem::path(path).extension() != ".json" &&
         std::filesystem::path(path).extension() != ".txt";
}

std::vector<std::string> long_files(const std::vector<SourceFile>& files) {
  std::vector<std::string> faults;
  for (const SourceFile& file : files) {
    const size_t lines = lines_of(file.text).size();
    if (is_written_by_hand(file.path) && lines > kMostLines)
      faults.push_back(file.path + " has " + std::to_string(lines) + " lines");
  }
  return faults;
}

/// Pages that only those who plan the project have. What a reader needs stands in headers and docs/.
std::vector<std::string> references_to_planning_pages(const std::vector<SourceFile>& files) {
  const std::string end = ".md";  // apart, so that this file does not refer to them
  const std::vector<std::string> names = {"DESIGN", "CONFIG", "CLI", "LIMITS", "FORMATS", "CASES", "STYLE"};
  std::vector<std::string> faults;
  for (const SourceFile& file : files)
    for (const std::string& name : names)
      if (file.text.find(name + end) != std::string::npos)
        faults.push_back(file.path + " refers to " + name + end);
  return faults;
}

TEST(HousePages, EveryFileIsShortEnoughToRead) {
  const std::vector<std::string> faults = long_files(source_tree());
  EXPECT_TRUE(faults.empty()) << joined(faults);
}

TEST(HousePages, NoticesALongFile) {
  std::string text;
  for (size_t i = 0; i < kMostLines; ++i) text += "x\n";
  EXPECT_TRUE(long_files({{"core/x.cpp", text}}).empty());
  EXPECT_EQ(long_files({{"core/x.cpp", text + "x"}}).size(), 1u);
  EXPECT_TRUE(long_files({{"tests/x.json", text + "x"}}).empty());
}

TEST(HousePages, TheTreeExplainsItself) {
  const std::vector<std::string> faults = references_to_planning_pages(source_tree());
  EXPECT_TRUE(faults.empty()) << joined(faults);
}

TEST(HousePages, NoticesAReferenceToAPlanningPage) {
  const std::string page = std::string("DESIGN") + ".md";
  EXPECT_EQ(references_to_planning_pages({{"core/x.h", "// see " + page + " 4"}}).size(), 1u);
  EXPECT_TRUE(references_to_planning_pages({{"README.md", "docs/config.md and docs/design.md"}}).empty());
}

}  // namespace
}  // namespace tandem::house
