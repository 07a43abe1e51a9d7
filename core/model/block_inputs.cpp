#include "core/model/block_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tandem {

namespace {
std::string name_of_input(int64_t layer) { return fmt::format("input of layer {}", layer); }
}  // namespace

InputRange::InputRange(int64_t layers, int64_t group, const ParamTable& table)
    : layers(layers), group(group), first(std::max<int64_t>(0, table.first_trained() - 1)) {}

BlockInputs::BlockInputs(const InputRange& range, const LayerShape& shape, Arena& arena, Stream& stream,
                         ActivationStore* store)
    : range_(range),
      dtype_(shape.dtype),
      rows_(shape.tokens()),
      columns_(shape.hidden),
      arena_(arena),
      stream_(stream),
      store_(store) {
  for (int64_t layer = 0; layer <= range.layers; ++layer)
    inputs_.emplace_back(static_cast<size_t>(range.group));
}

// Kept, the most is in the head: all inputs and the first gradient; from there on a gradient comes for each
// input that goes. Offloaded, forward holds the inputs of the micro-batches that a layer has still to do, the
// outputs of those that it has done, the one being made, and the last layer's first input; the head one
// gradient more and one output less; backward all gradients, an input and the next one.
int64_t BlockInputs::most_in_arena(int64_t layers, int64_t group, bool offloaded) {
  return offloaded ? group + 2 : group * (layers + 1) + 1;
}

int64_t BlockInputs::places(const InputRange& range) {
  return std::max<int64_t>(0, (range.layers - range.first) * range.group - 1);
}

bool BlockInputs::stays(int64_t layer, size_t m) const {
  return store_ == nullptr || layer == range_.layers || (layer == range_.layers - 1 && m == 0);
}

int64_t BlockInputs::place(int64_t layer, size_t m) const {
  const int64_t stayed = layer == range_.layers - 1 ? 1 : 0;
  return (layer - range_.first) * range_.group + static_cast<int64_t>(m) - stayed;
}

Tensor BlockInputs::make(int64_t layer, size_t m) { return at(layer, m).tensor = take(); }

void BlockInputs::made(int64_t layer, size_t m) {
  if (stays(layer, m) || layer < range_.first) return;
  Input& input = at(layer, m);
  input.moved = store_->send(place(layer, m), name_of_input(layer), input.tensor, stream_);
}

void BlockInputs::passed(int64_t layer, size_t m) {
  if (!stays(layer, m)) at(layer, m).tensor.release_after(at(layer, m).moved);
}

Tensor BlockInputs::read(int64_t layer, size_t m) {
  Input& input = at(layer, m);
  if (store_ == nullptr || layer == range_.layers) return input.tensor;
  fetch_next(layer, m);
  if (!stays(layer, m)) stream_.wait(input.moved);
  return input.tensor;
}

void BlockInputs::fetch_next(int64_t layer, size_t m) {
  const bool below = m + 1 == static_cast<size_t>(range_.group);
  const int64_t next_layer = below ? layer - 1 : layer;
  const size_t next_m = below ? 0 : m + 1;
  if (next_layer < range_.first) return;
  Input& next = at(next_layer, next_m);
  next.tensor = take();
  next.moved = store_->fetch(place(next_layer, next_m), name_of_input(next_layer), next.tensor, stream_);
}

}  // namespace tandem
