#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

// An inline function that a file compiled for a wide instruction set emits may be the copy that the linker
// keeps for the whole program, which then dies on a smaller CPU. So those files may define nothing that
// others could use.

namespace tandem {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char chunk[4096];
  while (pipe && std::fgets(chunk, sizeof chunk, pipe.get()) != nullptr) text += chunk;
  return text;
}

TEST(IdentityIsaObjects, DefineNothingThatOthersCouldUse) {
  // POSIX format: "LIBRARY[MEMBER]: NAME TYPE VALUE SIZE".
  std::istringstream lines(
      output_of("nm -A -P --defined-only " TANDEM_BINARY_DIR "/cpu_adam/libtandem_cpu_adam.a 2>&1"));
  std::vector<std::string> entries;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string member, name, type;
    if (!(words >> member >> name >> type)) continue;
    const bool wide = member.find("avx") != std::string::npos || member.find("neon") != std::string::npos;
    // Lower case is local to its file, but u: unique in the program.
    const bool shared = type == "u" || std::isupper(static_cast<unsigned char>(type[0])) != 0;
    // DW.ref is a pointer for exception tables, the same in every file.
    if (!wide || !shared || name.rfind("DW.ref.", 0) == 0) continue;
    const bool entry = type == "T" && name.find("_kernels") != std::string::npos;
    if (entry) entries.push_back(name);
    // What xsimd defines carries the instruction set in its name.
    EXPECT_TRUE(entry || name.find("5xsimd") != std::string::npos)
        << member << " defines " << name << " (" << type << ")";
  }
  // avx2, avx512, neon, for Adam and for host_reduce: nm was there and the names are what we look for.
  EXPECT_EQ(entries.size(), 6u);
}

}  // namespace
}  // namespace tandem
