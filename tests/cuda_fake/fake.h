#pragma once
// A CUDA runtime without a card, linked instead of NVIDIA's. It has the symbols that gpu/cuda uses and no
// others. Nothing that is enqueued runs at once: a seeded scheduler runs some of it at each call, all that is
// needed where somebody waits. What a card would answer with silence, garbage or a crash is a fault, which
// says what was wrong; the call then fails as well, unless it can't. Device memory can't be touched at its
// address but while kernels run. Vector clocks follow copies, fills and host_work.h's kernels: two that touch
// the same bytes must be ordered by streams, events, or a thread that waited (any thread's wait counts for
// all); nvcc's kernels don't say what they touch. The control of it:
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tandem::cuda_fake {

struct Settings {
  uint64_t seed = 0;
  int driver = CUDART_VERSION;  ///< newest CUDA version that it runs; 0: no driver
  int cards = 1;
  int major = 8, minor = 0;  ///< compute capability
  size_t memory = size_t{64} << 20;
  size_t pinnable = SIZE_MAX;  ///< bytes that can be pinned at once
  bool stream_memory_operations = true;
};

/// Begins anew. Nothing of before may be left.
void reset(const Settings& settings);
/// What the program did wrong since then.
std::vector<std::string> faults();
void clear_faults();

/// What there is now.
struct Live {
  size_t buffers = 0, pins = 0, streams = 0, events = 0;
  size_t queued = 0;  ///< pieces of work that have not run
  bool operator==(const Live&) const = default;
};
Live live();

/// The next call of that name fails so, and does nothing else.
void fail_call(const std::string& name, cudaError_t status);
/// The next copy, fill or kernel that runs fails so, as does every call from then on.
void fail_work(cudaError_t status);

/// Order is no matter any more, until the next reset: a device that fails lets its streams run to their end.
void forgive_order();

/// For mutants: the wait of a stream for an event with this number, counted from 0 since the reset, does
/// nothing.
void drop_wait(int64_t index);
/// How many there were.
int64_t event_waits();

/// Puts work on the stream that can't run until the flag, false at first, is set by the calling thread.
std::shared_ptr<bool> hold(cudaStream_t stream);

}  // namespace tandem::cuda_fake
