// What the fake runtime takes for a fault: each is provoked once, so that the silence of the other tests says
// something.
#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

/// Plain calls of the runtime: a stream, two events, a buffer of 64 bytes and as many of pinned memory.
struct Calls {
  Calls() : session({.seed = 1}) {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&buffer, 64), cudaSuccess);
    EXPECT_EQ(cudaHostRegister(pinned, 64, cudaHostRegisterPortable), cudaSuccess);
  }
  ~Calls() {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaHostUnregister(pinned), cudaSuccess);
    if (buffer != nullptr) {
      EXPECT_EQ(cudaFree(buffer), cudaSuccess);
    }
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  [[nodiscard]] cudaError_t to_card(const void* host, size_t bytes = 64) const {
    return cudaMemcpyAsync(buffer, host, bytes, cudaMemcpyHostToDevice, stream);
  }
  /// The only fault since the last call; it is forgiven.
  static void expect_fault(const std::string& part) {
    const std::vector<std::string> faults = cuda_fake::faults();
    ASSERT_EQ(faults.size(), 1u) << part;
    EXPECT_TRUE(contains(faults[0], part)) << faults[0];
    cuda_fake::clear_faults();
  }
  FakeSession session;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* buffer = nullptr;
  alignas(64) std::byte pinned[64] = {}, pageable[64] = {};
};

TEST(FakeCudaRuntime, MemoryOfTheWrongKindIsAFault) {
  Calls calls;
  EXPECT_NE(calls.to_card(calls.pageable), cudaSuccess);
  Calls::expect_fault("pageable");
  EXPECT_NE(cudaMemsetAsync(calls.pageable, 0, 1, calls.stream), cudaSuccess);
  Calls::expect_fault("pageable");
  EXPECT_NE(cudaMemcpyAsync(calls.buffer, calls.pinned, 64, cudaMemcpyDeviceToHost, calls.stream),
            cudaSuccess);
  Calls::expect_fault("a copy of kind 2 between memory that is of kind 1");
  EXPECT_NE(cudaMemcpyAsync(calls.buffer, calls.pinned, 64, cudaMemcpyDefault, calls.stream), cudaSuccess);
  Calls::expect_fault("a copy of kind 4");
}

TEST(FakeCudaRuntime, CopiesPastTheEndAreFaults) {
  Calls calls;
  EXPECT_NE(calls.to_card(calls.pinned, 65), cudaSuccess);
  ASSERT_EQ(cuda_fake::faults().size(), 2u);  // of both
  for (const std::string& fault : cuda_fake::faults()) EXPECT_TRUE(contains(fault, "past the end")) << fault;
  cuda_fake::clear_faults();
  EXPECT_EQ(calls.to_card(calls.pinned, 64), cudaSuccess);
}

TEST(FakeCudaRuntime, UseAfterFreeIsAFault) {
  Calls calls;
  void* const freed = calls.buffer;
  EXPECT_EQ(cudaFree(calls.buffer), cudaSuccess);
  calls.buffer = nullptr;
  EXPECT_NE(cudaMemsetAsync(freed, 0, 64, calls.stream), cudaSuccess);
  Calls::expect_fault("used after they were freed");
  EXPECT_NE(cudaFree(freed), cudaSuccess);
  Calls::expect_fault("no buffer");
}

TEST(FakeCudaRuntime, WhatIsInUseMustNotGo) {
  Calls calls;
  cudaStream_t held = nullptr;
  cudaEvent_t blocker = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&blocker, cudaEventBlockingSync), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&held, cudaStreamNonBlocking, 0), cudaSuccess);
  const auto stuck = cuda_fake::hold(held);
  void* buffer = nullptr;
  ASSERT_EQ(cudaMalloc(&buffer, 64), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(buffer, calls.pinned, 64, cudaMemcpyHostToDevice, held), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(blocker, held), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(blocker), cudaErrorNotReady);
  EXPECT_EQ(cudaFree(buffer), cudaSuccess);
  Calls::expect_fault("a buffer is freed before copy");
  EXPECT_EQ(cudaHostUnregister(calls.pinned), cudaSuccess);
  Calls::expect_fault("memory is unpinned before copy");
  EXPECT_EQ(cudaHostRegister(calls.pinned, 64, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(blocker), cudaSuccess);
  Calls::expect_fault("an event is destroyed before record of an event");
  EXPECT_EQ(cudaStreamDestroy(held), cudaSuccess);
  Calls::expect_fault("a stream is destroyed before it ran held work");
}

TEST(FakeCudaRuntime, EventsThatWereNeverRecordedAreFaults) {
  Calls calls;
  EXPECT_NE(cudaStreamWaitEvent(calls.stream, calls.event, 0), cudaSuccess);
  Calls::expect_fault("a wait of an event that was never recorded");
  EXPECT_NE(cudaEventSynchronize(calls.event), cudaSuccess);
  Calls::expect_fault("never recorded");
  EXPECT_NE(cudaEventQuery(calls.event), cudaSuccess);
  Calls::expect_fault("never recorded");
  float ms = 0;
  EXPECT_NE(cudaEventElapsedTime(&ms, calls.event, calls.event), cudaSuccess);
  Calls::expect_fault("never recorded");
}

TEST(FakeCudaRuntime, AWaitThatCannotEndIsAFault) {
  Calls calls;
  const auto stuck = cuda_fake::hold(calls.stream);
  ASSERT_EQ(cudaEventRecord(calls.event, calls.stream), cudaSuccess);
  EXPECT_NE(cudaEventSynchronize(calls.event), cudaSuccess);
  Calls::expect_fault("deadlock");
  *stuck = true;
  EXPECT_EQ(cudaEventSynchronize(calls.event), cudaSuccess);
}

TEST(FakeCudaRuntime, WhatItDoesNotKnowIsAFault) {
  Calls calls;
  int value = 0;
  EXPECT_NE(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0), cudaSuccess);
  Calls::expect_fault("is not implemented here");
  EXPECT_NE(cudaSetDevice(1), cudaSuccess);
  Calls::expect_fault("no card 1");
  cudaStream_t other = nullptr;
  EXPECT_NE(cudaStreamCreateWithPriority(&other, cudaStreamDefault, 0), cudaSuccess);
  Calls::expect_fault("default stream");
  EXPECT_NE(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 1), cudaSuccess);
  Calls::expect_fault("priority 1");
  EXPECT_NE(cudaMemsetAsync(calls.buffer, 0, 64, nullptr), cudaSuccess);
  Calls::expect_fault("fill on the default stream");
  cudaEvent_t spinning = nullptr;
  EXPECT_NE(cudaEventCreateWithFlags(&spinning, cudaEventDefault), cudaSuccess);
  Calls::expect_fault("spin");
  EXPECT_NE(cudaHostUnregister(calls.pageable), cudaSuccess);
  Calls::expect_fault("not pinned");
}

}  // namespace
}  // namespace tandem::gpu::cuda
