#pragma once
// Everything that decides what a training step computes and where. Made once from the config; read by the
// plan and the trainer.
#include <functional>
#include <vector>

#include "core/base/cpu_features.h"
#include "core/math/adam_formula.h"
#include "core/math/state_formats.h"
#include "core/model/arch.h"
#include "core/model/model.h"
#include "core/model/params.h"
#include "offload/step_policy.h"

namespace tandem {

/// Where a block's masters and moments live and where its update runs.
enum class Placement : uint8_t { host, device };

/// How the micro-batches of a step run: each block over all of them, or each of them over all blocks. The
/// same bits.
enum class Order : uint8_t { layer_major, micro_batch_major };

enum class OnNonfinite : uint8_t { skip, stop };

/// What the config leaves to the plan; settle() in offload/choices.h decides it.
struct LeftOpen {
  bool activations = false;  ///< what a layer keeps for its backward
  bool embedding = false;    ///< where the embedding's optimizer is
};

struct TrainSetup {
  Arch arch;
  DType dtype = DType::f32;   ///< weights, activations, gradients
  int64_t micro_batch = 1;    ///< B
  int64_t length = 1;         ///< T
  int64_t micro_batches = 1;  ///< M, of one step
  Order order = Order::layer_major;
  Keep keep = Keep::input;
  PolicyOptions policy;
  float prediction = 0;              ///< delayed: factor of `correction: predict`; 0 = correction none
  std::vector<Placement> placement;  ///< of each block
  LeftOpen open;
  AdamHyper adam;
  StateFormat states;  ///< of blocks whose states are on the host; on the device they are in fp32
  uint64_t seed = 0;   ///< of the random bits of compact states
  std::function<double(int64_t updates_before)> lr;
  double clip = 0;  ///< global norm; 0 = off
  OnNonfinite on_nonfinite = OnNonfinite::skip;
  int64_t max_skipped_in_a_row = 20;
  Isa isa = Isa::scalar;
  int layer_buckets = 2;  ///< gradient buckets that the layers share
  /// Of a gradient, elements that are rounded and sent at once: a power of two of the norm's leaves, so that
  /// the slices' sums are branches of its tree. 64 MiB of 16-bit elements.
  int64_t slice_elements = int64_t{1} << 25;
  int window = 0;  ///< layers for which the device has room at once, their weights streaming through; 0 = all
                   ///< weights stay on the device

  /// Slices of a gradient of so many elements; 1 for none.
  [[nodiscard]] int64_t slices_of(int64_t elements) const {
    return elements == 0 ? 1 : (elements + slice_elements - 1) / slice_elements;
  }
  /// Micro-batches of one forward or backward call, and such calls in a step.
  [[nodiscard]] int64_t group() const { return order == Order::layer_major ? micro_batches : 1; }
  [[nodiscard]] int64_t groups() const { return micro_batches / group(); }
  [[nodiscard]] int64_t tokens_per_micro_batch() const { return micro_batch * length; }
  [[nodiscard]] int64_t tokens_per_step() const { return micro_batches * tokens_per_micro_batch(); }
  /// How a block's states are held.
  [[nodiscard]] StateFormat format(BlockId block) const {
    return placement.at(static_cast<size_t>(block)) == Placement::host ? states : StateFormat{};
  }
  /// `exact`, where no decision can change what is done with a gradient: a non-finite one ends the run, none
  /// is clipped, and the scale is fixed. Then a block is updated as soon as its gradient has landed; else
  /// when the step has been decided.
  [[nodiscard]] bool updates_early() const { return policy.schedule == Schedule::exact && decides_nothing(); }
  /// No decision can change what is done with a gradient, whatever the schedule.
  [[nodiscard]] bool decides_nothing() const {
    return clip == 0 && dtype != DType::f16 && on_nonfinite == OnNonfinite::stop;
  }
  /// Whether the block's weights live on the host and are fetched for every pass. Those of a block whose
  /// optimizer is on the device stay there.
  [[nodiscard]] bool streams(BlockId block) const {
    return window > 0 && placement.at(static_cast<size_t>(block)) == Placement::host;
  }
  /// Whether the bf16 weights beside the masters of blocks on the host (the rest of split and ulp8) are those
  /// that the slots publish: a version then keeps its slot until the next update has read it. Else, where
  /// what is published differs from them or leaves its slot too late, they have a plane of their own.
  [[nodiscard]] bool upper_in_slots() const {
    return row_of(states.master).beside_weights && slots() == 2 && prediction == 0 && window == 0;
  }
  /// Bytes per element of that plane.
  [[nodiscard]] size_t upper_bytes() const { return upper_in_slots() ? 0 : bytes_beside(states); }
  /// Gradient slots of a block: a second one where a version may wait for its upload while the next gradient
  /// lands.
  [[nodiscard]] int slots() const { return policy.schedule == Schedule::delayed ? 2 : 1; }
};

}  // namespace tandem
