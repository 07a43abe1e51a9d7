#include "gpu/cuda/lane_flags.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "gpu/cuda/checks.h"

namespace tandem::gpu::cuda {

namespace {

constexpr unsigned kUntilAtLeast = 0;  // CU_STREAM_WAIT_VALUE_GEQ: (int32_t)(*word - number) >= 0
constexpr unsigned kDriverVersion = 12000;

bool has_come_to(uint32_t word, uint32_t number) { return static_cast<int32_t>(word - number) >= 0; }

}  // namespace

LaneFlags::LaneFlags() : issued_(kWords, 0) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, kDriverVersion,
                                              cudaEnableDefault, &result),
             "stream memory operations");
  CHECK(result == cudaDriverEntryPointSuccess && found != nullptr, Status::failed,
        "the NVIDIA driver has no stream memory operations", "cuStreamWaitValue32",
        "a driver of CUDA 12 or newer");
  static_assert(sizeof wait_value_ == sizeof found);
  std::memcpy(&wait_value_, &found, sizeof found);
  for (size_t word = kWords; word > 0; --word) free_.push_back(word - 1);
  void* words = nullptr;
  CUDA_CHECK(cudaHostAlloc(&words, kWords * sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable),
             "the lanes' flags");
  words_ = static_cast<uint32_t*>(words);
  std::fill_n(words_, kWords, 0u);
  CUDA_CHECK(cudaHostGetDevicePointer(&on_card_, words, 0), "the lanes' flags");
}

LaneFlags::~LaneFlags() { CUDA_LOG(cudaFreeHost(words_)); }

size_t LaneFlags::take() {
  const std::lock_guard lock(mutex_);
  ASSERT(!free_.empty(), "more than {} lanes at once", kWords);
  const size_t word = free_.back();
  free_.pop_back();
  return word;
}

void LaneFlags::give_back(size_t word) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(word);  // reserved by the constructor
}

uint32_t LaneFlags::issue(size_t word) {
  const std::lock_guard lock(mutex_);
  return ++issued_[word];
}

void LaneFlags::signal(size_t word, uint32_t number) noexcept {
  const std::atomic_ref<uint32_t> flag(words_[word]);
  uint32_t seen = flag.load(std::memory_order_relaxed);
  while (!has_come_to(seen, number) && !flag.compare_exchange_weak(seen, number, std::memory_order_release)) {
  }
}

bool LaneFlags::signalled(size_t word, uint32_t number) const noexcept {
  const std::atomic_ref<uint32_t> flag(words_[word]);
  return has_come_to(flag.load(std::memory_order_acquire), number) && !released_;
}

void LaneFlags::release_all() noexcept {
  released_ = true;
  const std::lock_guard lock(mutex_);
  for (size_t word = 0; word < kWords; ++word) signal(word, issued_[word]);
}

void LaneFlags::wait(cudaStream_t stream, size_t word, uint32_t number, const std::string& where) const {
  const auto address = reinterpret_cast<uintptr_t>(on_card_) + word * sizeof(uint32_t);
  const int status = wait_value_(stream, address, number, kUntilAtLeast);
  if (status != 0)  // the driver's numbers of errors are the runtime's
    throw CudaError(static_cast<cudaError_t>(status), "cuStreamWaitValue32", where);
}

}  // namespace tandem::gpu::cuda
