#pragma once
// Masters and moments of every block, and the slots, where the placement says.
#include <functional>
#include <vector>

#include "core/device/device.h"
#include "core/device/workers.h"
#include "cpu_adam/adam.h"
#include "offload/setup.h"
#include "offload/slots.h"

namespace tandem {

/// One block's planes in host or device memory, each [trained elements] but for the scales.
struct BlockStates {
  Tensor master;               // fp32; beside `upper` bf16 for the 16 raw bits of split, u8 for those of ulp8
  Tensor upper;                // bf16: round_weight(master), the rest of split and ulp8 masters; else empty
  Tensor exp_avg, exp_avg_sq;  // fp32, bf16, or u8 for the codes of int8
  Tensor exp_avg_scale, exp_avg_sq_scale;  // [trained / kStateGroup] bf16 with int8, else empty
  /// Those that are not empty.
  [[nodiscard]] std::vector<Tensor> planes() const;
};

/// How elements of these planes are kept.
DType master_dtype(MasterFormat format);
DType moment_dtype(MomentFormat format);

/// out = round_weight of the masters from element `first` on; both on the host.
void rounded_masters(Workers& workers, Isa isa, const BlockStates& states, int64_t first, Tensor out);

/// The bytes that hold n elements of a block's states from `first` on, a multiple of kStateGroup; on the
/// host.
AdamStates states_of(const BlockStates& block, StateFormat format, int64_t first, int64_t n);
/// The bf16 weights beside those masters; empty where the block has none.
Tensor upper_of(const BlockStates& block, int64_t first, int64_t n);

/// One call of adam() in the update of a block.
struct AdamPass {
  int64_t first = 0, count = 0;  ///< of the block's trained elements
  bool decay = false;
  uint32_t parameter = 0;  ///< which of the table's, where the pass is one parameter; else the first one
};
/// The calls that update a block on the host, in their order. States in fp32: as few as there are changes of
/// decay; compact ones: one for each parameter, from whose element 0 groups and random bits count.
std::vector<AdamPass> adam_passes(const ParamTable& table, BlockId block, StateFormat format);

class OptimizerStates {
 public:
  /// Allocates what plan_memory() says under "master", "exp_avg", "exp_avg_sq", "slots" (host) and
  /// "optimizer", "slots" (device). Moments on the host start at zero. Host memory is asked for with its use:
  /// the ranges of adam_passes(), so that a page is where the thread is that updates it; and for the slots
  /// the landing_node() of the device.
  OptimizerStates(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host);
  [[nodiscard]] const BlockStates& block(BlockId id) const { return blocks_.at(static_cast<size_t>(id)); }
  /// Whether the block's `upper` stands in the slot of its version.
  [[nodiscard]] bool upper_in_slot(BlockId id) const { return upper_in_slots_.at(static_cast<size_t>(id)); }
  /// The planes at a version, with `upper` from the slot that holds it where it is there.
  [[nodiscard]] BlockStates at(BlockId id, const Slots& slots, int64_t version) const;
  /// Of each block, how many read a version in its slot: whoever uploads or fetches it, and the next update
  /// where that takes `upper` from there.
  [[nodiscard]] std::vector<int> slot_readers() const;
  /// slots()[block]: memory of its slots, each [trained elements] of the training dtype.
  [[nodiscard]] const std::vector<std::vector<Tensor>>& slots() const { return slots_; }

 private:
  /// Memory of either kind for one plane of all its blocks, under a scope; null where it has no bytes.
  using Allocator = std::function<void*(const PlaneShape& shape, const char* scope)>;
  void cut(const TrainSetup& setup, const ParamTable& table, Placement where, const Allocator& allocate);
  std::vector<Buffer> buffers_;
  std::vector<Pin> pins_;
  std::vector<BlockStates> blocks_;
  std::vector<std::vector<Tensor>> slots_;
  std::vector<bool> upper_in_slots_;  ///< of each block
};

}  // namespace tandem
