#include "gpu/null/recording.h"

#include <span>
#include <utility>

namespace tandem::gpu {

size_t Recording::open(std::string_view name, Purpose purpose, bool lane) {
  streams_.push_back({std::string(name), purpose, lane, 0});
  waits_.emplace_back();
  passed_.emplace_back();
  start_.push_back(0);
  return streams_.size() - 1;
}

void Recording::begin_step() {
  for (size_t stream = 0; stream < streams_.size(); ++stream) start_[stream] = streams_[stream].operations;
  operations_.clear();
  digest_ = Xxh3();
}

void Recording::add(RecordedOperation operation) {
  operation.waits = std::exchange(waits_.at(operation.stream), {});
  for (RecordedPlace& place : operation.waits) place.operations -= start_[place.stream];
  ++streams_[operation.stream].operations;
  digest(operation);
  if (kept_ == Operations::listed) operations_.push_back(std::move(operation));
}

void Recording::digest(const RecordedOperation& operation) {
  const auto update = [&](const auto& value) { digest_.update(std::as_bytes(std::span(&value, 1))); };
  update(operation.stream);
  update(operation.name.size());
  digest_.update(std::as_bytes(std::span(operation.name)));
  update(operation.read_bytes);
  update(operation.written_bytes);
  update(operation.flops);
  update(operation.waits.size());
  for (const RecordedPlace& place : operation.waits) update(place);
}

void Recording::wait(size_t stream, RecordedPlace place) {
  if (place.stream == stream) return;  // a stream runs in order
  std::vector<int64_t>& passed = passed_.at(stream);
  passed.resize(streams_.size(), 0);
  if (place.operations <= passed[place.stream]) return;
  passed[place.stream] = place.operations;
  waits_[stream].push_back(place);
}

}  // namespace tandem::gpu
