#include "tests/offload/trace_file.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::testing {

namespace {

constexpr double kRounding = 1e-4;  // of a microsecond: sums of texts of three decimals

uint64_t u64_of(const json::Value& args, const char* key) {
  const json::Value* value = args.find(key);
  return value != nullptr ? *value->u64() : 0;
}

std::string text_of(const json::Value& object, const char* key) {
  const json::Value* value = object.find(key);
  return value != nullptr ? *value->string() : "";
}

TraceFile::Event event_of(const json::Value& in, const std::string& track) {
  TraceFile::Event event;
  event.name = text_of(in, "name");
  event.category = text_of(in, "cat");
  event.track = track;
  event.begin = *in.find("ts")->number();
  event.end = event.begin + *in.find("dur")->number();
  const json::Value& args = *in.find("args");
  event.op = u64_of(args, "op");
  event.by = u64_of(args, "by");
  event.awaited = u64_of(args, "awaited");
  event.bytes = u64_of(args, "bytes");
  event.reason = text_of(args, "for");
  event.block = text_of(args, "block");
  if (const json::Value* queued = args.find("queued_us")) event.queued = *queued->number();
  if (const json::Value* idle = args.find("idle_us"))
    for (const json::Member& cause : *idle->object()) event.idle[cause.key] = *cause.value.number();
  return event;
}

}  // namespace

TraceFile::TraceFile(const std::string& text) {
  const json::Value root = json::parse(text, "trace.json").root;
  EXPECT_EQ(*root.find("displayTimeUnit")->string(), "ms");
  std::map<int64_t, std::string> tracks;
  std::map<int64_t, double> last;
  std::map<int64_t, std::string> ends;
  for (const json::Value& event : *root.find("traceEvents")->array()) {
    EXPECT_EQ(*event.find("pid")->i64(), 1);
    const std::string phase = *event.find("ph")->string();
    const int64_t track = *event.find("tid")->i64();
    if (phase == "M") {
      if (text_of(event, "name") == "thread_name") tracks[track] = text_of(*event.find("args"), "name");
      continue;
    }
    EXPECT_TRUE(tracks.contains(track)) << "an event before its track has a name";
    EXPECT_GE(*event.find("ts")->number(), 0);
    if (phase != "X") {
      ++arrows[phase];
      ends[*event.find("id")->i64()] += phase;
      continue;
    }
    events.push_back(event_of(event, tracks[track]));
    EXPECT_GE(events.back().end, events.back().begin);
    EXPECT_GE(events.back().begin, last[track] - kRounding) << "two at a time on " << tracks[track];
    last[track] = events.back().end;
  }
  for (const auto& [id, phases] : ends) EXPECT_EQ(phases, "sf") << id;
}

std::vector<TraceFile::Event> TraceFile::of(const std::string& track) const {
  std::vector<Event> out;
  std::ranges::copy_if(events, std::back_inserter(out), [&](const Event& e) { return e.track == track; });
  return out;
}

TraceFile::Event TraceFile::step(int64_t step) const {
  for (const Event& event : of("steps"))
    if (event.name == "step " + std::to_string(step)) return event;
  ADD_FAILURE() << "no step " << step;
  return {};
}

std::map<std::string, double> TraceFile::times(int64_t number) const {
  const Event span = step(number);
  std::map<std::string, double> ms;
  ms["step"] = (span.end - span.begin) * 1e-3;
  for (const Event& event : of("stream compute")) {
    if (event.begin < span.begin - kRounding || event.end > span.end + kRounding) continue;
    if (event.idle.empty()) ms["busy"] += (event.end - event.begin) * 1e-3;
    for (const auto& [cause, us] : event.idle) ms[cause == "compute" ? "other" : cause] += us * 1e-3;
  }
  return ms;
}

std::map<uint64_t, std::set<std::string>> TraceFile::ancestors(const std::string& lane) const {
  std::map<uint64_t, const Event*> operations;  // numbered as they were enqueued
  std::vector<const Event*> main_waits;         // as they ended
  for (const Event& event : events) {
    if (event.op != 0) operations[event.op] = &event;
    if (event.track == "main thread" && event.category == "wait") main_waits.push_back(&event);
  }
  std::map<uint64_t, std::set<std::string>> done;
  std::map<std::string, uint64_t> last;  // of a track
  std::set<std::string> known_to_main;
  size_t waits = 0;
  for (const auto& [number, event] : operations) {
    for (; waits < main_waits.size() && main_waits[waits]->end <= event->queued + kRounding; ++waits)
      known_to_main.merge(std::set(done[main_waits[waits]->awaited]));
    std::set<std::string> before;
    for (const uint64_t earlier : {last[event->track], event->awaited, event->by})
      if (const auto found = done.find(earlier); found != done.end())
        before.insert(found->second.begin(), found->second.end());
    if (event->by == 0) before.insert(known_to_main.begin(), known_to_main.end());
    if (event->track == lane && event->category != "wait") before.insert(event->name);
    done[number] = std::move(before);
    last[event->track] = number;
  }
  return done;
}

}  // namespace tandem::testing
