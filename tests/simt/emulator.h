#pragma once
// Runs a kernel of gpu/kernels on the CPU as the programming model says: blocks one after the other in an
// order drawn from a seed, a fiber for each thread, threads entered in an order drawn anew for each block.
// What a GPU would silently get wrong is a Fault that names kernel, block and thread: races in shared and
// global memory, elements that were never written, accesses outside of arrays and tensors, unaligned wide
// accesses, barriers that not every thread reaches, shuffles whose masks disagree or name lanes that aren't
// there. It proves logic: neither speed, nor what memory models allow between warps.
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/kernels/simt.h"

namespace tandem::simt {

class Fault : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

/// Global memory that a launch may touch.
struct GlobalMemory {
  std::string name;
  const void* data;
  size_t bytes;
  bool writable;
};

/// A planted fault: what is done wrong at one place of the source ("reduce.cuh:19").
struct Mutant {
  enum class Kind { barrier_left_out, mask_without_upper_lanes } kind;
  std::string site;
};

/// Places of the source where threads met.
struct Sites {
  std::set<std::string> barriers, shuffles;
};

struct Launch {
  std::string kernel;
  gpu::Grid grid;
  std::vector<GlobalMemory> memory;
  uint64_t seed = 0;
  std::optional<Mutant> mutant = std::nullopt;
  Sites* sites = nullptr;  ///< gathers where threads met, if not null
};

class Fiber;

class Emulator {
 public:
  Emulator();
  ~Emulator();
  /// body() is the kernel's call, made once by each thread. Throws Fault. One launch at a time in a process.
  void run(const Launch& launch, const std::function<void()>& body);

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;  // of kBlockThreads threads, used again by each block
};

}  // namespace tandem::simt
