#pragma once
// Bytes per tier and scope, from one closed formula each. The trainer allocates exactly these; the
// allocators' counters agree.
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/model/params.h"
#include "offload/setup.h"

namespace tandem {

/// Scope -> bytes. Keys are the scopes that the allocators count under.
using ScopeBytes = std::map<std::string, size_t>;

struct MemoryPlan {
  ScopeBytes device;   ///< weights, gradients, activations, optimizer, slots, batches, scalars, tables
  ScopeBytes host;     ///< master, exp_avg, exp_avg_sq, and the pinned: slots, weights, activations, batches,
                       ///< scalars, tables
  size_t staging = 0;  ///< of the host, pinned; held only while planes are loaded, saved or rounded
  [[nodiscard]] size_t device_bytes() const;
  [[nodiscard]] size_t host_bytes() const;
  [[nodiscard]] size_t pinned_bytes() const;
  /// With the staging: while states are loaded or saved.
  [[nodiscard]] size_t most_pinned_bytes() const { return pinned_bytes() + staging; }
};

MemoryPlan plan_memory(const TrainSetup& setup, const ParamTable& table);

/// The parts that allocation shares with the plan.
/// Bytes of the staging buffer between a checkpoint's side and the planes: blocks whose states live on the
/// device go through it whole, all others in pieces, as do frozen weights.
size_t staging_bytes(const TrainSetup& setup, const ParamTable& table);
/// Elements of a frozen parameter that are loaded at once; 0 where nothing is frozen.
int64_t frozen_piece(const ParamTable& table);
/// Bytes of the inputs of layers that wait on the host for backward; 0 unless setup.keep says so.
size_t offloaded_input_bytes(const TrainSetup& setup, const ParamTable& table);
struct PlaneBytes {
  int64_t host_elements = 0, device_elements = 0;  ///< trained ones of all blocks of either placement
};
PlaneBytes plane_elements(const TrainSetup& setup, const ParamTable& table);

/// Where 16-bit weights stand besides the slots. A window has slots of two sizes, as the buckets have.
struct WeightPlan {
  int64_t resident = 0;                            ///< elements that stay on the device
  int64_t layer_elements = 0, vocab_elements = 0;  ///< of one slot of the window
  int layer_slots = 0, vocab_slots = 0;
  int64_t frozen = 0;  ///< elements on the host that stream without being trained
  [[nodiscard]] int64_t device_elements() const {
    return resident + layer_elements * layer_slots + vocab_elements * vocab_slots;
  }
};
WeightPlan plan_weights(const TrainSetup& setup, const ParamTable& table);

/// Gradient buckets by size class.
struct BucketPlan {
  int64_t layer_elements = 0, vocab_elements = 0;  ///< of one bucket
  int layer_buckets = 0, vocab_buckets = 0;
  /// Of each of kStagings, in the training dtype, where what is sent to the host is rounded first; else 0.
  int64_t staging_elements = 0;
  [[nodiscard]] size_t bytes(DType dtype) const;
};
constexpr int kStagings = 2;  // while one is sent the next is filled
/// Blocks with a vocabulary-sized parameter are in the vocab class.
bool is_vocab_block(const Arch& arch, const ParamTable& table, BlockId block);
BucketPlan plan_buckets(const TrainSetup& setup, const ParamTable& table);

/// Sets of scalars that may be in flight: one per step that the main thread can be ahead, and one to spare.
constexpr int kStepSets = 3;
/// The first slice of each block's gradient among those of all blocks, and their number at the end.
std::vector<int64_t> slice_places(const TrainSetup& setup, const ParamTable& table);
/// f64 numbers of one step: two per slice (sum of squares, non-finite count), one per micro-batch (loss).
int64_t scalars_per_step(const TrainSetup& setup, const ParamTable& table);

}  // namespace tandem
