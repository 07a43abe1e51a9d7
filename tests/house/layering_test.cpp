#include "tests/house/layering.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::house {
namespace {

TEST(HouseLayering, HoldsInTheTree) {
  const std::vector<SourceFile> files = source_tree();
  const auto rooms = {"core/base/error.h", "cpu_adam/plain_pool.cpp", "gpu/backend.h",
                      "offload/cli/main.cpp"};
  for (const char* path : rooms)
    EXPECT_TRUE(std::any_of(files.begin(), files.end(), [&](const SourceFile& f) { return f.path == path; }))
        << path << " was not read, so the check below proves nothing";
  const std::vector<std::string> faults = layering_faults(files);
  EXPECT_TRUE(faults.empty()) << joined(faults);
}

/// One file with one planted line, in a tree that holds a header of each room.
std::vector<std::string> faults_of(const std::string& path, const std::string& line) {
  return layering_faults({{"core/a.h", ""},
                          {"cpu_adam/a.h", ""},
                          {"gpu/a.h", ""},
                          {"offload/a.h", ""},
                          {"tests/a.h", ""},
                          {path, "// first line\n" + line + "\n"}});
}

struct Planted {
  const char* path;
  const char* line;
  const char* says;  ///< a part of the one fault that must be found; null for none
};

void expect_found_or_allowed(const std::vector<Planted>& cases) {
  for (const Planted& planted : cases) {
    SCOPED_TRACE(std::string(planted.path) + ": " + planted.line);
    const std::vector<std::string> faults = faults_of(planted.path, planted.line);
    EXPECT_EQ(faults.size(), planted.says == nullptr ? 0u : 1u) << joined(faults);
    if (planted.says == nullptr || faults.size() != 1) continue;
    EXPECT_NE(faults[0].find(planted.says), std::string::npos) << faults[0];
    EXPECT_TRUE(faults[0].starts_with(std::string(planted.path) + ":2: ")) << faults[0];
  }
}

TEST(HouseLayering, FindsPlantedArrows) {
  expect_found_or_allowed({{"core/x.cpp", "#include \"core/a.h\"", nullptr},
                           {"core/x.cpp", "#include \"cpu_adam/a.h\"", "core must not include"},
                           {"core/x.h", "#include <gpu/a.h>", "core must not include"},
                           {"core/x.cpp", "  #  include \"offload/a.h\"", "core must not include"},
                           {"cpu_adam/x.cpp", "#include \"gpu/a.h\"", "cpu_adam must not include"},
                           {"gpu/x.cu", "#include \"cpu_adam/a.h\"", "gpu must not include"},
                           {"gpu/x.cuh", "#include \"offload/a.h\"", "gpu must not include"},
                           {"offload/x.cpp", "#include \"cpu_adam/a.h\"", nullptr},
                           {"offload/x.cpp", "#include \"gpu/a.h\"", nullptr},
                           {"offload/x.cpp", "#include \"tests/a.h\"", "does not name a room"},
                           {"gpu/x.h", "#include \"a.h\"", "does not name a room"},
                           {"gpu/x.h", "#include \"../core/a.h\"", "does not name a room"},
                           {"gpu/x.h", "#include \"core/missing.h\"", "no file of the tree"},
                           {"gpu/x.h", "#include HEADER", "computes"}});
}

TEST(HouseLayering, FindsPlantedLibraries) {
  expect_found_or_allowed({{"core/x.cpp", "#include <tbb/parallel_for.h>", "oneTBB"},
                           {"core/x.cpp", "#include <oneapi/tbb.h>", "oneTBB"},
                           {"offload/x.cpp", "#include <tbb/task_arena.h>", "oneTBB"},
                           {"cpu_adam/x.cpp", "#include <tbb/task_arena.h>", nullptr},
                           {"core/x.cpp", "#include <hwloc.h>", "hwloc"},
                           {"gpu/host/x.cpp", "#include <hwloc/linux.h>", "hwloc"},
                           {"cpu_adam/x.cpp", "#include <hwloc.h>", nullptr},
                           {"core/x.h", "#include <cuda_runtime.h>", "CUDA"},
                           {"gpu/kernels/x.cuh", "#include <cuda_bf16.h>", "CUDA"},
                           {"gpu/cuda/x.h", "#include <cublasLt.h>", nullptr},
                           {"gpu/x.h", "#include <nccl.h>", "NCCL"},
                           {"gpu/cuda/x.h", "#include <nccl.h>", nullptr},
                           {"offload/x.h", "#include <mpi.h>", "MPI"},
                           {"gpu/comm/mpi.cpp", "#include <mpi.h>", nullptr},
                           {"gpu/host/x.cpp", "#include <cblas.h>", nullptr},
                           {"cpu_adam/x.cpp", "#include <cblas.h>", "BLAS"},
                           {"offload/x.h", "#include <CLI/CLI.hpp>", "CLI11"},
                           {"core/x.cpp", "#include <thread>", "threads"},
                           {"offload/x.cpp", "#include <future>", "threads"},
                           {"offload/x.cpp", "#include <mutex>", nullptr},
                           {"gpu/host/x.h", "#include <thread>", nullptr},
                           {"core/x.h", "#include <gtest/gtest.h>", "GoogleTest"},
                           {"core/x.h", "#include <nlohmann/json.hpp>", "in a header"}});
}

TEST(HouseLayering, FindsPlantedSwitches) {
  expect_found_or_allowed({{"core/x.h", "#ifdef __AVX2__", "#if outside"},
                           {"core/math/x.h", "#if defined(__CUDA_ARCH__)", "#if outside"},
                           {"offload/x.cpp", " # ifndef NDEBUG", "#if outside"},
                           {"cpu_adam/x.cpp", "#elif 1", "#if outside"},
                           {"cpu_adam/isa/x.cpp", "#ifdef __AVX2__", nullptr},
                           {"core/base/portable.h", "#ifdef __CUDACC__", nullptr},
                           {"gpu/kernels/x.cuh", "#ifdef __CUDACC__", nullptr}});
}

TEST(HouseLayering, CountsTheFilesThatIncludeJson) {
  const std::string line = "#include <nlohmann/json.hpp>\n";
  const std::vector<SourceFile> two = {{"core/a.cpp", line}, {"core/b.cpp", line + line}};
  EXPECT_TRUE(layering_faults(two).empty());
  std::vector<SourceFile> three = two;
  three.push_back({"offload/c.cpp", line});
  ASSERT_EQ(layering_faults(three).size(), 1u);
  EXPECT_NE(layering_faults(three)[0].find("core/a.cpp core/b.cpp offload/c.cpp"), std::string::npos);
}

}  // namespace
}  // namespace tandem::house
