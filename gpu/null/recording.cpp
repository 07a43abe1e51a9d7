#include "gpu/null/recording.h"

#include <utility>

namespace tandem::gpu {

size_t Recording::open(std::string_view name, Purpose purpose, bool lane) {
  streams_.push_back({std::string(name), purpose, lane, 0});
  waits_.emplace_back();
  passed_.emplace_back();
  return streams_.size() - 1;
}

void Recording::add(RecordedOperation operation) {
  operation.waits = std::exchange(waits_.at(operation.stream), {});
  ++streams_[operation.stream].operations;
  operations_.push_back(std::move(operation));
}

void Recording::wait(size_t stream, RecordedPlace place) {
  if (place.stream == stream) return;  // a stream runs in order
  std::vector<int64_t>& passed = passed_.at(stream);
  passed.resize(streams_.size(), 0);
  if (place.operations <= passed[place.stream]) return;
  passed[place.stream] = place.operations;
  waits_[stream].push_back(place);
}

std::vector<RecordedOperation> Recording::take() { return std::exchange(operations_, {}); }

}  // namespace tandem::gpu
