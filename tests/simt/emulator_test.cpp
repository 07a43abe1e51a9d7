// The emulator's teeth: what each fault of a kernel must be called, and that a sound kernel isn't accused.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/simt/emulator.h"

namespace tandem::simt {
namespace {

using namespace gpu::TANDEM_SIMT;  // NOLINT: the kernels below are written in the dialect

using gpu::kAllLanes;
constexpr int kThreads = 64;

/// Memory of the launches below: an input and an output.
class SimtEmulator : public testing::Test {
 protected:
  SimtEmulator() { std::iota(in_.begin(), in_.end(), 0.0f); }

  /// Blocks of two warps.
  template <class Kernel>
  void run(int64_t blocks, const Kernel& kernel) {
    const std::vector<GlobalMemory> memory = {{"in", in_.data(), sizeof in_, false},
                                              {"out", out_.data(), sizeof out_, true}};
    emulator_.run({"planted", {blocks, kThreads}, memory}, [&] { kernel(in_.data(), out_.data()); });
  }
  /// The launch must fail and say each of these.
  template <class Kernel>
  void expect_fault(int64_t blocks, const Kernel& kernel, std::initializer_list<const char*> says) {
    try {
      run(blocks, kernel);
      ADD_FAILURE() << "nothing was noticed";
    } catch (const Fault& fault) {
      for (const char* part : says)
        EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
    }
  }

  std::array<float, 256> in_{};
  std::array<float, 16> between_{};  // in no launch
  std::array<float, 256> out_{};
  Emulator emulator_;
};

TEST_F(SimtEmulator, RunsASoundKernel) {
  run(2, [](const float* in, float* out) {
    SHARED_ARRAY(float, turned, kThreads);
    const int64_t base = block() * threads();
    for (int round = 0; round < 2; ++round) {
      turned[threads() - 1 - thread()] = read(in + base + thread());
      block_barrier();
      write(out + base + thread(), turned[thread()] + static_cast<float>(round));
      block_barrier();
    }
  });
  for (size_t i = 0; i < 2 * kThreads; ++i)
    EXPECT_EQ(out_[i], static_cast<float>(i / kThreads * kThreads + kThreads - 1 - i % kThreads) + 1);
  EXPECT_EQ(out_[2 * kThreads], 0);
}

TEST_F(SimtEmulator, ShufflesAndVotesWithinTheirMasks) {
  run(1, [](const float* in, float* out) {
    const float x = read(in + thread());
    const uint32_t half = lane() < 16 ? 0x0000FFFFu : 0xFFFF0000u;  // two groups, each on its own
    const float other = shuffle_xor(half, x, 15);
    const uint32_t odd = ballot(kAllLanes, thread() % 2 == 1);
    write(out + thread(), odd == 0xAAAAAAAAu ? other : -1.0f);
  });
  for (size_t t = 0; t < kThreads; ++t) EXPECT_EQ(out_[t], in_[t ^ 15u]);
}

TEST_F(SimtEmulator, MissingBarrierIsARace) {
  expect_fault(1,
               [](const float* in, float* out) {
                 SHARED_ARRAY(float, turned, kThreads);
                 turned[thread()] = read(in + thread());
                 if (thread() == 0) block_barrier();
                 write(out + thread(), static_cast<float>(turned[thread() ^ 1]));
               },
               {"planted, block 0, thread ", "turned"});
}

TEST_F(SimtEmulator, MissingBarrierBeforeTheNextWriteIsARace) {
  expect_fault(1,
               [](const float* in, float* out) {
                 SHARED_ARRAY(float, turned, kThreads);
                 for (int round = 0; round < 2; ++round) {
                   turned[thread()] = read(in + thread());
                   block_barrier();
                   write(out + thread(), static_cast<float>(turned[thread() ^ 1]));
                 }
               },
               {"turned", "with no barrier between"});
}

TEST_F(SimtEmulator, TwoWritersAreARaceEvenWithEqualValues) {
  expect_fault(1,
               [](const float*, float*) {
                 SHARED_ARRAY(int, flag, 1);
                 flag[0] = 1;
               },
               {"writes flag (word 0)", "wrote, with no barrier between"});
}

TEST_F(SimtEmulator, OneElementTooFarIsOutside) {
  expect_fault(1,
               [](const float*, float*) {
                 SHARED_ARRAY(float, sums, kThreads);
                 sums[thread() + 1] = 0.0f;
               },
               {"block 0, thread 63: writes sums[64], an array of 64"});
}

TEST_F(SimtEmulator, UnwrittenElementIsNotRead) {
  expect_fault(1,
               [](const float*, float* out) {
                 SHARED_ARRAY(float, sums, kThreads);
                 if (thread() > 0) sums[thread()] = 1.0f;
                 block_barrier();
                 write(out + thread(), static_cast<float>(sums[thread()]));
               },
               {"thread 0: reads sums[0], which was never written"});
}

TEST_F(SimtEmulator, SharedMemoryOfAnEarlierBlockIsGone) {
  expect_fault(2,
               [](const float*, float* out) {
                 SHARED_ARRAY(float, sums, kThreads);
                 if (block() == 0) sums[thread()] = 1.0f;
                 if (block() == 1) write(out + thread(), static_cast<float>(sums[thread()]));
               },
               {"block 1", "reads sums", "never written"});
}

TEST_F(SimtEmulator, ThreadsThatEndBeforeABarrierAreNamed) {
  expect_fault(1,
               [](const float*, float*) {
                 if (thread() == 17) return;
                 block_barrier();
               },
               {"waits at the barrier emulator_test.cpp:", "thread 17 has ended"});
}

TEST_F(SimtEmulator, ThreadsAtAnotherBarrierAreNamed) {
  expect_fault(1,
               [](const float*, float*) {
                 if (warp() == 0) {
                   block_barrier();
                 } else {
                   block_barrier();
                 }
               },
               {"thread 0: waits at the barrier emulator_test.cpp:", "thread 32 is at the barrier"});
}

TEST_F(SimtEmulator, LaneOutsideItsOwnMask) {
  expect_fault(1, [](const float*, float*) { shuffle_xor(0x0000FFFFu, 1.0f, 1); },
               {"isn't in its own mask 0x0000ffff"});
}

TEST_F(SimtEmulator, SourceOutsideTheMask) {
  expect_fault(1,
               [](const float*, float*) {
                 if (lane() < 16) shuffle_xor(0x0000FFFFu, 1.0f, 16);
               },
               {"not in the mask 0x0000ffff"});
}

TEST_F(SimtEmulator, MasksThatDisagree) {
  expect_fault(
      1, [](const float*, float*) { shuffle_xor(lane() == 5 ? 0x00FFFFFFu | 1u << 31 : kAllLanes, 1.0f, 1); },
      {"with the mask", "lane"});
}

TEST_F(SimtEmulator, LaneThatHasEnded) {
  expect_fault(1,
               [](const float*, float*) {
                 if (lane() == 31) return;
                 shuffle_xor(kAllLanes, 1.0f, 1);
               },
               {"with lane 31, which has ended"});
}

TEST_F(SimtEmulator, LaneThatWaitsElsewhere) {
  expect_fault(1,
               [](const float*, float*) {
                 if (lane() == 3) {
                   block_barrier();
                 } else {
                   ballot(kAllLanes, true);
                 }
               },
               {"with lane 3, which is at the barrier emulator_test.cpp:"});
}

TEST_F(SimtEmulator, GlobalMemoryEndsWhereTheTensorEnds) {
  expect_fault(1, [](const float* in, float*) { read(in + 256); },
               {"reads 4 bytes at byte 1024 of the 1024 of in"});
  expect_fault(1, [](const float*, float* out) { write(out - 1, 0.0f); }, {"writes 4 bytes"});
}

TEST_F(SimtEmulator, InputsAreNotWritten) {
  expect_fault(1, [](const float* in, float*) { write(const_cast<float*>(in) + thread(), 0.0f); },
               {"of in, which is an input"});
}

TEST_F(SimtEmulator, WideAccessesAreAligned) {
  expect_fault(1, [](const float* in, float*) { read_wide(in + 1); },
               {"reads 16 bytes at an address that is no multiple"});
}

TEST_F(SimtEmulator, BlocksThatShareAnElementAreARace) {
  expect_fault(2, [](const float*, float* out) { write(out + thread(), static_cast<float>(block())); },
               {"writes out", "wrote, with no barrier between"});
  expect_fault(2,
               [](const float*, float* out) {
                 if (block() == 0) write(out + thread(), 1.0f);
                 if (block() == 1) read(out + thread());
               },
               {"out", "with no barrier between"});
}

TEST_F(SimtEmulator, RunsAgainAfterAFault) {
  expect_fault(1,
               [](const float*, float*) {
                 SHARED_ARRAY(float, sums, 1);
                 sums[1] = 0.0f;
               },
               {"sums[1]"});
  run(1, [](const float* in, float* out) { write(out + thread(), read(in + thread())); });
  EXPECT_EQ(out_[63], 63);
}

TEST_F(SimtEmulator, GridsAreWholeWarps) {
  EXPECT_THROW(emulator_.run({"planted", {1, 33}, {}}, [] {}), Fault);
  EXPECT_THROW(emulator_.run({"planted", {0, 32}, {}}, [] {}), Fault);
  EXPECT_THROW(emulator_.run({"planted", {1, 512}, {}}, [] {}), Fault);
}

}  // namespace
}  // namespace tandem::simt
