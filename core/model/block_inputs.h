#pragma once
// The inputs of the layers and of the head between forward and backward: all of them in the arena, or a few
// there and the others in an ActivationStore.
#include <cstdint>
#include <vector>

#include "core/model/block.h"
#include "core/model/exchange.h"
#include "core/model/params.h"
#include "core/run/arena.h"

namespace tandem {

/// How many layers and micro-batches, and which of their inputs backward reads.
struct InputRange {
  int64_t layers = 0, group = 0;
  int64_t first = 0;  ///< the first layer that backward goes through; `layers` or more: none
  InputRange(int64_t layers, int64_t group, const ParamTable& table);
};

/// Inputs of one group. Forward makes them in the order (layer, micro-batch), the head counting as the last
/// layer; backward reads the head's first, then layer by layer down, the micro-batches in forward's order.
///
/// With a store an input is sent away as soon as it is there, and its memory is free once forward has used it
/// too. The head's inputs stay, and the first one of the last layer: backward begins with these. From then on
/// the next input is fetched while backward works on the one before.
class BlockInputs {
 public:
  /// store: null where all inputs stay in the arena. shape: of one input, [B*T, H].
  BlockInputs(const InputRange& range, const LayerShape& shape, Arena& arena, Stream& stream,
              ActivationStore* store);

  /// The most inputs, and gradients of inputs that backward takes for each micro-batch as it comes to it,
  /// that are in the arena at once.
  static int64_t most_in_arena(int64_t layers, int64_t group, bool offloaded);
  /// Inputs that go through a store.
  static int64_t places(const InputRange& range);

  /// Memory of an input's size.
  [[nodiscard]] ArenaTensor take() { return arena_.take(dtype_, {rows_, columns_}); }
  /// The first layer that backward goes through.
  [[nodiscard]] int64_t first() const { return range_.first; }

  /// Forward: memory for an input, [B*T, H].
  [[nodiscard]] Tensor make(int64_t layer, size_t m);
  /// Forward: it has been written.
  void made(int64_t layer, size_t m);
  /// Forward: an input that has been made and not passed.
  [[nodiscard]] Tensor get(int64_t layer, size_t m) { return at(layer, m).tensor; }
  /// Forward: the layer has used it.
  void passed(int64_t layer, size_t m);

  /// Backward: the input, once the stream has come this far.
  [[nodiscard]] Tensor read(int64_t layer, size_t m);
  /// Backward: the layer has used it.
  void drop(int64_t layer, size_t m) { at(layer, m).tensor.reset(); }

 private:
  struct Input {
    ArenaTensor tensor;
    Fence moved;  ///< the last copy out of it, or into it
  };
  [[nodiscard]] Input& at(int64_t layer, size_t m) { return inputs_.at(static_cast<size_t>(layer)).at(m); }
  [[nodiscard]] bool stays(int64_t layer, size_t m) const;
  [[nodiscard]] int64_t place(int64_t layer, size_t m) const;
  void fetch_next(int64_t layer, size_t m);

  const InputRange range_;
  const DType dtype_;
  const int64_t rows_, columns_;
  Arena& arena_;
  Stream& stream_;
  ActivationStore* store_;
  std::vector<std::vector<Input>> inputs_;  // [layer 0..L][m]
};

}  // namespace tandem
