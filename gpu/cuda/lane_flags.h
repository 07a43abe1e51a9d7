#pragma once
// How a CUDA stream waits for CPU work: each lane has a word of pinned memory that counts its fences as they
// pass, and the stream waits in the card's front end until the word has come so far. No thread blocks.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tandem::gpu::cuda {

class LaneFlags {
 public:
  /// Error(failed) where the driver has no stream memory operations.
  LaneFlags();
  ~LaneFlags();
  LaneFlags(const LaneFlags&) = delete;
  LaneFlags& operator=(const LaneFlags&) = delete;

  /// A word for a new lane, and the way back. It goes on from where the last lane left it.
  [[nodiscard]] size_t take();
  void give_back(size_t word) noexcept;
  /// The number of the word's next fence.
  [[nodiscard]] uint32_t issue(size_t word);
  /// That fence has passed, and all before it. Numbers wrap around; the word never goes back.
  void signal(size_t word, uint32_t number) noexcept;
  /// Whether it has; no more once release_all() was called, which says nothing of what was done.
  [[nodiscard]] bool signalled(size_t word, uint32_t number) const noexcept;
  /// The device has failed: all fences that were issued count as passed, so that every stream comes to its
  /// end.
  void release_all() noexcept;
  /// What is enqueued on the stream after this runs after the fence.
  void wait(cudaStream_t stream, size_t word, uint32_t number, const std::string& where) const;

 private:
  using WaitValue = int (*)(cudaStream_t, unsigned long long, uint32_t, unsigned);  // cuStreamWaitValue32
  static constexpr size_t kWords = 1024;
  WaitValue wait_value_ = nullptr;
  uint32_t* words_ = nullptr;  ///< [kWords], pinned
  void* on_card_ = nullptr;    ///< their address there
  std::atomic<bool> released_ = false;
  std::mutex mutex_;
  std::vector<size_t> free_;
  std::vector<uint32_t> issued_;  ///< by word
};

}  // namespace tandem::gpu::cuda
