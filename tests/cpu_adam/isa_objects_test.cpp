#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/cpu_features.h"
#include "isa/product_and_sum.h"

// An inline function that a file compiled for a wide instruction set emits may be the copy that the linker
// keeps for the whole program, which then dies on a smaller CPU. So those files may define nothing that
// others could use. Nor may the compiler make one FMA of a product and a sum where it has the instruction.

namespace tandem {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char chunk[4096];
  while (pipe && std::fgets(chunk, sizeof chunk, pipe.get()) != nullptr) text += chunk;
  return text;
}

/// Of "LIBRARY[MEMBER]" or "MEMBER": the folders of the library may be called anything.
bool is_wide(const std::string& path) {
  const std::string member = path.substr(path.find_last_of("/[") + 1);
  return member.find("avx") != std::string::npos || member.find("neon") != std::string::npos;
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
    // Lower case is local to its file, but u: unique in the program.
    const bool shared = type == "u" || std::isupper(static_cast<unsigned char>(type[0])) != 0;
    // DW.ref is a pointer for exception tables, the same in every file.
    if (!is_wide(member) || !shared || name.rfind("DW.ref.", 0) == 0) continue;
    const bool entry = type == "T" && name.find("_kernels") != std::string::npos;
    if (entry) entries.push_back(name);
    // What xsimd defines carries the instruction set in its name.
    EXPECT_TRUE(entry || name.find("5xsimd") != std::string::npos)
        << member << " defines " << name << " (" << type << ")";
  }
  // avx2, avx512, neon, for Adam and for host_reduce: nm was there and the names are what we look for.
  EXPECT_EQ(entries.size(), 6u);
}

/// On x86-64 all that is newer than SSE2 and touches vectors has a name that begins with v.
TEST(IdentityIsaObjects, AreTheOnlyOnesWithWideInstructions) {
  std::istringstream lines(
      output_of("objdump -d --no-show-raw-insn " TANDEM_BINARY_DIR "/cpu_adam/libtandem_cpu_adam.a 2>&1"));
  int members = 0, wide_instructions = 0;
  bool x86 = false;
  std::string member;
  for (std::string line; std::getline(lines, line);) {
    if (const size_t format = line.find("file format"); format != std::string::npos) {
      member = line.substr(0, format);
      x86 = line.find("x86-64") != std::string::npos;
      ++members;
    }
    const size_t tab = line.find('\t');
    if (!x86 || tab == std::string::npos || line[tab + 1] != 'v') continue;
    ++wide_instructions;
    EXPECT_TRUE(is_wide(member)) << member << line.substr(tab);
  }
  if (members > 0 && !x86) GTEST_SKIP() << "not of x86-64";
  EXPECT_GT(members, 10);
  EXPECT_GT(wide_instructions, 1000);  // those of the ISA files: the names are what we look for
}

TEST(NumbersContraction, AProductAndASumAreRoundedTwice) {
  if (usable_isas().size() < 2) GTEST_SKIP() << "a CPU without FMA";
  // a * b = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11; an FMA would leave 2^-24.
  const volatile float a = 1 + 0x1p-12f, c = -(1 + 0x1p-11f);
  EXPECT_EQ(product_and_sum(a, a, c), 0.0f);
  EXPECT_EQ(product_and_sum_of_vectors(a, a, c), 0.0f);
}

}  // namespace
}  // namespace tandem
