#include "gpu/host/trace_log.h"

namespace tandem::gpu {

namespace {

constexpr size_t kMainTrack = 0;

TraceEvent event_of(const Operation& operation) {
  TraceEvent event;
  const bool waits = operation.kind == Operation::Kind::wait;
  event.kind = waits ? TraceEvent::Kind::wait : TraceEvent::Kind::work;
  event.queued_ns = operation.queued;
  event.name = operation.label.name;
  event.range = operation.range;
  event.bytes = operation.bytes;
  event.operation = operation.number;
  event.queued_by = operation.queued_by;
  if (waits) {
    event.awaited = operation.moment->after;
    event.awaited_text = operation.moment->text;
  }
  return event;
}

TraceEvent idle_event(bool starved) {
  TraceEvent event;
  event.kind = TraceEvent::Kind::idle;
  event.name = starved ? "nothing enqueued" : "slow to begin";
  return event;
}

/// The event of a time that begins and ends here.
TraceEvent at(TraceEvent event, size_t track, Nanos now) {
  event.track = track;
  event.begin_ns = event.end_ns = now;
  return event;
}

/// Makes the event longer by the slice that follows.
void extend(TraceEvent& event, const Slice& slice) {
  event.end_ns = slice.end;
  if (!slice.busy) event.idle_ns[static_cast<size_t>(slice.cause)] += slice.end - slice.begin;
}

}  // namespace

TraceLog::TraceLog(Actor main) : main_(main) {
  trace_.tracks.push_back({"main thread", TraceTrack::Kind::thread, Purpose::other});
}

size_t TraceLog::track(WorkQueue& queue) {
  const auto [track, is_new] = tracks_.try_emplace(queue.actor, trace_.tracks.size());
  if (is_new) {
    const auto kind = queue.lane ? TraceTrack::Kind::lane : TraceTrack::Kind::stream;
    trace_.tracks.push_back({queue.name, kind, queue.runner->meter.own()});
    queue.runner->meter.keep_slices(true);
  }
  return track->second;
}

void TraceLog::add(WorkQueue& queue, const Operation& operation) {
  enum class Part : uint8_t { none, starved, slow, own } part = Part::none;
  const size_t track = this->track(queue);
  const bool waits = operation.kind == Operation::Kind::wait;
  for (const Slice& slice : queue.runner->meter.take_slices()) {
    const Part next = slice.begin < operation.queued ? Part::starved
                      : slice.busy || waits          ? Part::own
                                                     : Part::slow;
    if (next != part)
      events().push_back(at(next == Part::own ? event_of(operation) : idle_event(next == Part::starved),
                            track, slice.begin));
    part = next;
    extend(events().back(), slice);
  }
  if (part != Part::own && operation.kind != Operation::Kind::record)
    events().push_back(at(event_of(operation), track, queue.runner->meter.at()));
}

void TraceLog::add_doing(const std::vector<Slice>& slices, const std::string& what) {
  TraceEvent event;
  event.name = what;
  for (const Slice& slice : slices) {
    events().push_back(at(event, kMainTrack, slice.begin));
    extend(events().back(), slice);
  }
}

void TraceLog::add_wait(const std::vector<Slice>& slices, Nanos begin, TraceEvent wait) {
  wait.kind = TraceEvent::Kind::wait;
  wait.name = "wait";
  wait.queued_ns = begin;
  events().push_back(at(std::move(wait), kMainTrack, begin));
  for (const Slice& slice : slices) extend(events().back(), slice);
}

}  // namespace tandem::gpu
