#include "tests/house/build_flags.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "tests/house/source_tree.h"

namespace tandem::house {
namespace {

std::vector<CompileCommand> this_build() {
  std::ifstream in(std::string(TANDEM_BINARY_DIR) + "/compile_commands.json");
  const std::string json{std::istreambuf_iterator<char>(in), {}};
  return compile_commands(json, TANDEM_SOURCE_DIR);
}

TEST(NumbersBuildFlags, KeepTheContract) {
  const std::vector<std::string> faults = flag_faults(this_build());
  EXPECT_TRUE(faults.empty()) << joined(faults);
}

/// Else a file that a build leaves out, or a command that is not read, would pass the check above.
TEST(NumbersBuildFlags, AreReadForEveryFileOfCore) {
  std::set<std::string> compiled;
  for (const CompileCommand& command : this_build()) {
    compiled.insert(command.file);
    EXPECT_GE(command.words.size(), 5u) << command.file;
  }
  for (const SourceFile& file : source_tree()) {
    if (!file.path.starts_with("core/") || !file.path.ends_with(".cpp")) continue;
    EXPECT_TRUE(compiled.contains(file.path)) << file.path << " has no compile command";
  }
}

TEST(NumbersBuildFlags, AreReadAsCMakeWritesThem) {
  const auto commands = compile_commands(
      "[\n{\n  \"directory\": \"/b\",\n"
      "  \"command\": \"/usr/bin/c++ -DX=\\\\\\\"a\\\\\\\" -O3 -o a.o -c /root dir/core/a.cpp\",\n"
      "  \"file\": \"/root dir/core/a.cpp\",\n  \"output\": \"a.o\"\n},\n"
      "{\n  \"command\": \"cc -c /b/generated.cpp\",\n  \"file\": \"/b/generated.cpp\"\n}\n]\n",
      "/root dir");
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_EQ(commands[0].file, "core/a.cpp");
  ASSERT_GE(commands[0].words.size(), 3u);
  EXPECT_EQ(commands[0].words[1], "-DX=\\\"a\\\"");
  EXPECT_EQ(commands[0].words[2], "-O3");
}

struct Planted {
  const char* file;
  std::vector<std::string> words;
  const char* says;  ///< a part of the one fault that must be found; null for none
};

TEST(NumbersBuildFlags, AreFoundOrAllowedWhenPlanted) {
  const std::string off = "-ffp-contract=off";
  const std::vector<Planted> cases = {
      {"core/a.cpp", {"c++", off, "-O3"}, nullptr},
      {"core/a.cpp", {"c++", "-O3"}, "without -ffp-contract=off"},
      {"tests/core/a.cpp", {"c++"}, "without -ffp-contract=off"},
      {"core/a.cpp", {"c++", off, "-ffp-contract=fast"}, "with -ffp-contract=fast"},
      {"core/a.cpp", {"c++", off, "-ffast-math"}, "with -ffast-math"},
      {"cpu_adam/isa/a.cpp", {"c++", off, "-Ofast"}, "with -Ofast"},
      {"cpu_adam/isa/a.cpp", {"c++", off, "-march=native"}, "with -march=native"},
      {"cpu_adam/isa/a.cpp", {"c++", off, "-mavx2", "-mfma"}, nullptr},
      {"core/a.cpp", {"c++", off, "-mfma"}, "no ISA file"},
      {"gpu/host/a.cpp", {"c++", off, "-mavx512f"}, "no ISA file"},
      {"gpu/host/a.cpp", {"c++", off, "-march=haswell"}, "no ISA file"},
      {"gpu/cuda/a.cu", {"nvcc", "-fmad=false"}, nullptr},
      {"gpu/cuda/a.cu", {"nvcc"}, "without -fmad=false"},
      {"gpu/cuda/a.cu", {"nvcc", "-fmad=false", "-use_fast_math"}, "with -use_fast_math"}};
  for (Planted planted : cases) {
    if (planted.file == std::string("gpu/cuda/a.cu"))
      planted.words.insert(planted.words.end(), {"-ftz=false", "-prec-div=true", "-prec-sqrt=true"});
    const std::vector<std::string> faults = flag_faults({{planted.file, planted.words}});
    SCOPED_TRACE(std::string(planted.file) + " " + planted.words.back());
    EXPECT_EQ(faults.size(), planted.says == nullptr ? 0u : 1u) << joined(faults);
    if (planted.says == nullptr || faults.size() != 1) continue;
    EXPECT_NE(faults[0].find(planted.says), std::string::npos) << faults[0];
  }
}

}  // namespace
}  // namespace tandem::house
