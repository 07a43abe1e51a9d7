#include "gpu/null/recording.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tandem::gpu {

size_t Recording::open(std::string_view name, Purpose purpose, bool lane) {
  streams_.push_back({std::string(name), purpose, lane, 0});
  waits_.emplace_back();
  passed_.emplace_back();
  start_.push_back(0);
  held_.push_back(0);
  return streams_.size() - 1;
}

void Recording::begin_step() {
  for (size_t stream = 0; stream < streams_.size(); ++stream) start_[stream] = streams_[stream].operations;
  operations_.clear();
  digest_ = Xxh3();
}

void Recording::add(RecordedOperation operation) {
  operation.waits = std::exchange(waits_.at(operation.stream), {});
  operation.task = task_;
  if (!task_) operation.held = std::exchange(holds_, {});
  const auto count_from_here = [&](RecordedPlace& place) { place.operations -= start_[place.stream]; };
  std::ranges::for_each(operation.waits, count_from_here);
  std::ranges::for_each(operation.held, count_from_here);
  if (operation.task) count_from_here(*operation.task);
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
  for (const auto* places : {&operation.waits, &operation.held}) {
    update(places->size());
    for (const RecordedPlace& place : *places) update(place);
  }
  update(operation.task.value_or(RecordedPlace{SIZE_MAX, 0}));
}

void Recording::hold(RecordedPlace place) {
  if (task_ || place.operations <= held_.at(place.stream)) return;
  held_[place.stream] = place.operations;
  holds_.push_back(place);
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
