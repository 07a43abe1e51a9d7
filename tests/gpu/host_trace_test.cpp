#include <algorithm>
#include <thread>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

std::vector<TraceEvent> of_track(const Trace& trace, const std::string& name) {
  std::vector<TraceEvent> events;
  for (const TraceEvent& event : trace.events)
    if (trace.tracks[event.track].name == name) events.push_back(event);
  return events;
}

const TraceEvent& named(const std::vector<TraceEvent>& events, const std::string& name) {
  const auto found = std::ranges::find(events, name, &TraceEvent::name);
  if (found == events.end()) throw std::runtime_error("no event " + name);
  return *found;
}

/// A kernel, a copy of what it wrote, a task behind that, and the kernel's stream behind the task.
struct Round {
  explicit Round(std::optional<uint64_t> seed = {}) : rig(seed) {}
  Rig rig;
  const Buffer buffer = rig.device.allocate(1 << 10, "weights");
  const Tensor all = buffer.tensor(DType::f32, {1 << 8});
  Pinned<float> host{rig.device, 1 << 8};
  std::unique_ptr<Stream> compute = rig.device.stream("compute", Purpose::compute, 0);
  std::unique_ptr<Stream> d2h = rig.device.stream("d2h", Purpose::d2h, 0);
  std::unique_ptr<HostLane> lane = rig.device.lane("cpu", Purpose::adam);
  Fence run() {
    compute->range("backward layer 3");
    rig.device.enqueue(*compute, add_value(all, 1));
    d2h->wait(compute->record());
    d2h->range("gradient of layer 3");
    d2h->copy(host.tensor(), all);
    lane->wait(d2h->record());
    lane->run({"adam", {host.tensor()}, {}, [] {}});
    compute->wait(lane->record());
    return compute->record();
  }
};

TEST(NumbersTrace, PiecesOfAStreamAreItsTimesBetweenAnyTwoFences) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), std::optional<uint64_t>(4)}) {
    Round round(mode);
    round.compute->fill_zero(round.all);
    std::vector<Fence> fences = {round.compute->record()};
    fences.front().wait();
    round.rig.device.begin_trace();
    for (int i = 0; i < 5; ++i) fences.push_back(round.run());
    fences.back().wait();
    const std::vector<TraceEvent> events = of_track(round.rig.device.end_trace(), "compute");
    for (size_t from = 0; from < fences.size(); ++from)
      for (size_t to = from + 1; to < fences.size(); ++to) {
        const StreamTimes times = round.compute->times(fences[from], fences[to]);
        int64_t busy = 0, adam = 0, at = times.from_ns;
        for (const TraceEvent& event : events) {
          if (event.begin_ns < times.from_ns || event.end_ns > times.to_ns) continue;
          EXPECT_EQ(event.begin_ns, at) << "a gap before " << event.name;
          at = event.end_ns;
          int64_t idle = 0;
          for (const int64_t ns : event.idle_ns) idle += ns;
          EXPECT_EQ(idle, event.kind == TraceEvent::Kind::work ? 0 : event.end_ns - event.begin_ns);
          if (event.kind == TraceEvent::Kind::work) busy += event.end_ns - event.begin_ns;
          adam += event.idle_ns[static_cast<size_t>(Purpose::adam)];
        }
        EXPECT_EQ(at, times.to_ns);
        EXPECT_DOUBLE_EQ(static_cast<double>(busy) * 1e-6, times.busy_ms);
        EXPECT_DOUBLE_EQ(static_cast<double>(adam) * 1e-6, times.adam_ms);
      }
  }
}

TEST(NumbersTrace, SaysWhatAWaitWaitedForAndWhatACopyMoves) {
  Round round;
  round.rig.device.begin_trace();
  round.rig.device.range("the test");
  const Fence end = round.run();
  end.wait();
  const auto promise = round.rig.device.promise("upload");
  round.lane->run({"publish", {}, {}, [&] {
                     round.d2h->copy(round.host.tensor(), round.all);
                     promise->fulfil(round.d2h->record());
                   }});
  (void)promise->recorded();
  round.d2h->record().wait();
  round.lane->record().wait();
  const Trace trace = round.rig.device.end_trace();
  const auto compute = of_track(trace, "compute"), d2h = of_track(trace, "d2h"),
             lane = of_track(trace, "cpu"), main = of_track(trace, "main thread");
  EXPECT_EQ(named(compute, "add_value").range, "backward layer 3");
  EXPECT_EQ(named(d2h, "copy").bytes, 1024u);
  EXPECT_EQ(named(d2h, "copy").range, "gradient of layer 3");
  EXPECT_EQ(named(d2h, "wait").awaited, named(compute, "add_value").operation);
  EXPECT_EQ(named(lane, "wait").awaited, named(d2h, "copy").operation);
  EXPECT_EQ(named(compute, "wait").awaited, named(lane, "adam").operation);
  EXPECT_EQ(named(compute, "wait").awaited_text, "lane \"cpu\" (range \"\")");
  EXPECT_EQ(named(compute, "add_value").queued_by, 0u);
  const auto second = std::find_if(d2h.rbegin(), d2h.rend(), [](const auto& e) { return e.name == "copy"; });
  EXPECT_EQ(second->range, "") << "the task's own, not the main thread's";
  EXPECT_EQ(second->queued_by, named(lane, "publish").operation);
  std::vector<std::pair<std::string, uint64_t>> waits;
  for (const TraceEvent& event : main)
    if (event.kind == TraceEvent::Kind::wait) waits.emplace_back(event.awaited_text, event.awaited);
  ASSERT_EQ(waits.size(), 4u);
  EXPECT_EQ(waits[0].second, named(compute, "wait").operation) << "the last one before the fence";
  EXPECT_EQ(waits[1], std::pair(std::string("promise \"upload\""), named(lane, "publish").operation));
  EXPECT_EQ(named(main, "the test").kind, TraceEvent::Kind::work);
}

TEST(NumbersTrace, NothingIsKeptBeforeOrAfter) {
  Round round;
  round.run().wait();
  round.rig.device.begin_trace();
  const Trace empty = round.rig.device.end_trace();
  for (const TraceEvent& event : empty.events) EXPECT_EQ(event.track, 0u) << event.name;
  EXPECT_EQ(empty.tracks.size(), 4u);
  round.run().wait();
  EXPECT_THROW((void)round.rig.device.end_trace(), InternalError);
  round.rig.device.begin_trace();
  round.run().wait();
  const Trace trace = round.rig.device.end_trace();
  EXPECT_EQ(std::ranges::count(of_track(trace, "compute"), "add_value", &TraceEvent::name), 1);
}

TEST(NumbersTrace, EndsAfterAFailureToo) {
  Round round;
  round.rig.device.begin_trace();
  round.run().wait();
  round.rig.device.fail(std::make_exception_ptr(std::runtime_error("planted")));
  EXPECT_EQ(std::ranges::count(of_track(round.rig.device.end_trace(), "cpu"), "adam", &TraceEvent::name), 1);
}

}  // namespace
}  // namespace tandem::gpu
