#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gpu/host/access_map.h"
#include "gpu/host/clock.h"
#include "gpu/host/device_memory.h"
#include "tests/cuda_fake/fake.h"

namespace tandem::cuda_fake {

/// One recording of an event.
struct Recording {
  bool passed = false;
  int64_t ns = 0;    ///< when it passed
  gpu::Clock clock;  ///< what had run before it
};

/// Bytes that an operation needs until it has run.
struct Span {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};

/// A kernel with its arguments, which were read at the launch. Without `run` nobody knows that kernel.
struct BoundKernel {
  std::function<void()> run;
  std::vector<Span> uses;
};
using Bind = std::function<BoundKernel(const std::string& name, dim3 grid, dim3 block, void** arguments)>;

struct Operation {
  std::string text;
  std::vector<Span> uses = {};
  std::vector<gpu::Access> accesses = {};  ///< that must be ordered
  gpu::Clock known = {};                   ///< what had run when it was enqueued, as the host knew
  std::function<bool()> ready = {};        ///< empty: at once
  std::function<void()> run = {};
  bool is_work = false;
  bool waits_for_host = false;
  cudaEvent_t event = nullptr;  ///< that it records or waits for
};

}  // namespace tandem::cuda_fake

struct CUstream_st {
  std::deque<tandem::cuda_fake::Operation> operations;
  tandem::gpu::Actor actor = 0;
  tandem::gpu::Clock clock;  ///< of what ran last
};

struct CUevent_st {
  std::shared_ptr<tandem::cuda_fake::Recording> last;
};

namespace tandem::cuda_fake {

/// Memory that has an address: host memory as it is, or device memory by its face.
struct Place {
  enum class Kind { device, pinned, unknown } kind = Kind::unknown;
  std::byte* bytes = nullptr;  ///< where it can be touched
  std::shared_ptr<const gpu::Mapping> mapping;
};

/// All that the fake knows. One lock for all of it, held while work runs.
struct State {
  std::mutex mutex;
  Settings settings;
  std::mt19937_64 random;
  std::vector<std::string> faults;
  gpu::AccessMap accesses;
  bool order_matters = true;
  gpu::Actor actors = 0;
  gpu::Clock host;  ///< what any thread has seen to be done
  int64_t event_waits = 0, dropped_wait = -1;
  cudaError_t sticky = cudaSuccess, failing_work = cudaSuccess;
  std::map<std::string, cudaError_t> failing_calls;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::map<const std::byte*, std::shared_ptr<const gpu::Mapping>> buffers;
  std::map<const std::byte*, size_t> freed;
  std::map<const std::byte*, size_t> pins;
  std::map<const std::byte*, std::shared_ptr<const gpu::Mapping>> mapped;  ///< cudaHostAlloc's, by body
  std::map<const void*, std::string> kernels;  ///< names by what stands for them on the host
  Bind bind;                                   ///< how kernels run
};
State& state();
void run_kernels_by(Bind bind);

using Lock = std::unique_lock<std::mutex>;

/// The calling thread's last failure: each has its own, as with CUDA.
cudaError_t& last_error();
/// Notes what was wrong; the status that the call then has.
cudaError_t fault(const std::string& text, cudaError_t status = cudaErrorInvalidValue);
/// What the call ends with: remembered for cudaGetLastError.
cudaError_t done(cudaError_t status);
/// What a call has to fail with before it does anything.
cudaError_t planted(const char* call);

/// Puts work at the end of a stream, and lets the scheduler run a little.
cudaError_t enqueue(cudaStream_t stream, Operation operation);
/// Runs work until the condition holds.
cudaError_t run_until(Lock& lock, const std::string& what, const std::function<bool()>& condition);
void run_a_little();
/// The operation that needs some of these bytes, in words; empty if none does.
std::string user_of(const std::byte* begin, size_t bytes);

/// Where the bytes are; a fault if they are not in one place.
Place place_of(const void* address, size_t bytes, const std::string& what);
/// Device memory can be touched at its address as long as this lives.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

}  // namespace tandem::cuda_fake

/// The beginning of every call: the lock, and what it fails with anyway.
#define FAKE_CALL(name)                                                                      \
  auto& fake = ::tandem::cuda_fake::state();                                                 \
  ::tandem::cuda_fake::Lock lock(fake.mutex);                                                \
  if (const cudaError_t before = ::tandem::cuda_fake::planted(#name); before != cudaSuccess) \
  return ::tandem::cuda_fake::done(before)
