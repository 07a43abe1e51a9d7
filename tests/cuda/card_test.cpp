// What CudaDevice says when there is no card to work with: one line and the cure.
#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

struct Case {
  cuda_fake::Settings settings;
  CudaDeviceOptions options;
  Status status;
  const char *says, *cure;
};

TEST(FakeCudaCards, WhatIsMissingIsOneLineAndTheCure) {
  const Case cases[] = {
      {{.driver = 0}, {}, Status::usage, "no NVIDIA driver", "install one"},
      {{.driver = 12080}, {}, Status::usage, "the NVIDIA driver runs CUDA 12.8 at most", "a newer driver"},
      {{.cards = 0}, {}, Status::usage, "the NVIDIA driver has no card", "\"host\""},
      {{.cards = 2}, {.card = 2}, Status::usage, "there is no cuda:2", "cuda:0 to cuda:1"},
      {{.major = 7, .minor = 5}, {}, Status::usage, "compute capability 7.5, below 8.0", "2020 or later"},
      {{.memory = 1000},
       {.memory_limit = 1001},
       Status::does_not_fit,
       "above the 1000 that are free",
       "1000 or less"},
      {{.stream_memory_operations = false}, {}, Status::failed, "no stream memory operations", "CUDA 12"},
  };
  for (const Case& c : cases) {
    const FakeSession session(c.settings);
    try {
      const CudaDevice device(c.options, {});
      ADD_FAILURE() << c.says << ": opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), c.status) << error.what();
      EXPECT_TRUE(contains(error.message(), c.says)) << error.what();
      EXPECT_TRUE(contains(error.hint(), c.cure)) << error.what();
      EXPECT_FALSE(contains(error.message(), "\n"));
    }
  }
}

TEST(FakeCudaCards, RunWhatWasCompiledForThemOrForEarlierOnesAsPtx) {
  EXPECT_TRUE(runs_on("80", 8, 0));
  EXPECT_TRUE(runs_on("80", 8, 6));
  EXPECT_TRUE(runs_on("80", 12, 0));  // by PTX
  EXPECT_FALSE(runs_on("90", 8, 9));
  EXPECT_TRUE(runs_on("90,80", 8, 9));
  EXPECT_TRUE(runs_on("80-real,90-real", 8, 9));
  EXPECT_FALSE(runs_on("86-real,90-real", 8, 0));
  EXPECT_FALSE(runs_on("80-real,90-real", 10, 0));
  EXPECT_TRUE(runs_on("80-real,90", 10, 0));
  EXPECT_FALSE(runs_on("100-virtual", 9, 0));
  EXPECT_FALSE(runs_on("", 9, 0));
}

TEST(FakeCudaCards, OneThatWillDoTellsOfItself) {
  const FakeSession session({.cards = 2, .major = 9, .memory = 1 << 20});
  const CudaDevice device({.card = 1}, {});
  const DeviceInfo info = device.info();
  EXPECT_EQ(info.name, "cuda:1");
  EXPECT_EQ(info.kind, "cuda");
  EXPECT_EQ(info.memory_bytes, size_t{1} << 20);
  EXPECT_EQ(info.free_bytes, size_t{1} << 20);
  EXPECT_EQ(info.pci_bus_id, "0000:02:00.0");
}

}  // namespace
}  // namespace tandem::gpu::cuda
