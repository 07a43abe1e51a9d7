// What ptxas says of each kernel, where nvcc built them: gpu/cuda/launch.ptxas.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tandem::simt {
namespace {

/// One kernel for one architecture. Numbers in bytes, but registers.
struct Resources {
  std::string function;  ///< mangled
  int registers = -1, stack = -1, spill_stores = -1, spill_loads = -1, shared = 0;
};

int number(const std::string& line, const char* pattern) {
  std::smatch match;
  return std::regex_search(line, match, std::regex(pattern)) ? std::stoi(match[1]) : -1;
}

std::vector<Resources> resources_of(std::istream& report) {
  std::vector<Resources> kernels;
  std::smatch match;
  for (std::string line; std::getline(report, line);) {
    if (std::regex_search(line, match, std::regex("Compiling entry function '([^']+)'")))
      kernels.push_back({.function = match[1]});
    if (kernels.empty()) continue;
    Resources& kernel = kernels.back();
    if (line.find("stack frame") != std::string::npos) {
      kernel.stack = number(line, "(\\d+) bytes stack frame");
      kernel.spill_stores = number(line, "(\\d+) bytes spill stores");
      kernel.spill_loads = number(line, "(\\d+) bytes spill loads");
    }
    if (line.find(" registers") == std::string::npos) continue;
    kernel.registers = number(line, "Used (\\d+) registers");
    kernel.shared = std::max(0, number(line, "(\\d+) bytes smem"));
  }
  return kernels;
}

std::string faults_of(const Resources& kernel) {
  constexpr int kMostRegisters = 65536 / (2 * 256);  // two blocks of 256 threads on a multiprocessor
  constexpr int kMostShared = 48 * 1024;
  std::string faults;
  if (kernel.registers < 1 || kernel.registers > kMostRegisters)
    faults += std::to_string(kernel.registers) + " registers; ";
  if (kernel.stack != 0) faults += std::to_string(kernel.stack) + " bytes of stack; ";
  if (kernel.spill_stores != 0 || kernel.spill_loads != 0) faults += "spills; ";
  if (kernel.shared > kMostShared) faults += std::to_string(kernel.shared) + " bytes of shared memory; ";
  return faults;
}

TEST(SimtResources, EveryKernelFitsWithoutSpills) {
#if defined(TANDEM_PTXAS_REPORT)
  std::ifstream report(TANDEM_PTXAS_REPORT);
  const std::vector<Resources> kernels = resources_of(report);
  for (const Resources& kernel : kernels) EXPECT_EQ(faults_of(kernel), "") << kernel.function;

  std::ifstream file(TANDEM_SOURCE_DIR "/gpu/kernels/launches.h");
  const std::string launches{std::istreambuf_iterator<char>(file), {}};
  const std::regex launched("launcher\\(\"(\\w+)\"");
  std::set<std::string> names;
  for (std::sregex_iterator it(launches.begin(), launches.end(), launched), end; it != end; ++it)
    names.insert((*it)[1]);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    const std::string mangled = std::to_string(name.size()) + name;
    EXPECT_TRUE(std::any_of(
        kernels.begin(), kernels.end(),
        [&](const Resources& kernel) { return kernel.function.find(mangled) != std::string::npos; }))
        << name << " is not in " << TANDEM_PTXAS_REPORT;
  }
#else
  GTEST_SKIP() << "built without CUDA";
#endif
}

TEST(SimtResources, SpillsAndLargeKernelsAreNoticed) {
  const auto report = [](const std::string& stack, const std::string& used) {
    std::istringstream text(
        "ptxas info    : Compiling entry function '_Z1fv' for 'sm_80'\n"
        "ptxas info    : Function properties for _Z1fv\n    " +
        stack + "\nptxas info    : Used " + used + ", 376 bytes cmem[0]\n");
    const std::vector<Resources> kernels = resources_of(text);
    return kernels.size() == 1 ? faults_of(kernels[0]) : "not one kernel";
  };
  const std::string none = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
  EXPECT_EQ(report(none, "64 registers, used 1 barriers, 8192 bytes smem"), "");
  EXPECT_EQ(report(none, "129 registers"), "129 registers; ");
  EXPECT_EQ(report(none, "64 registers, 49153 bytes smem"), "49153 bytes of shared memory; ");
  EXPECT_EQ(report("16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", "8 registers"),
            "16 bytes of stack; ");
  EXPECT_EQ(report("0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads", "8 registers"),
            "spills; ");
}

}  // namespace
}  // namespace tandem::simt
