#include "offload/trace.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "core/io/json.h"

namespace tandem {

namespace {

constexpr int64_t kProcess = 1;
constexpr size_t kStepsTrack = 1, kFirstTrack = 2;  // numbers of tracks in the file

const char* name_of(Purpose purpose) {
  constexpr const char* kNames[] = {"compute", "d2h", "adam", "h2d", "other"};
  return kNames[static_cast<size_t>(purpose)];
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// Whether `part` stands in the text as whole words.
bool has_words(std::string_view text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

class Writer {
 public:
  Writer(const Trace& trace, std::span<const TracedStep> steps, const ParamTable& table)
      : trace_(trace), steps_(steps), table_(table), begin_(steps.front().from_ns) {
    for (const TraceEvent& event : trace.events) {
      if (!is_kept(event)) continue;
      origin_ = std::min(origin_, event.begin_ns);
      if (event.operation != 0) operations_[event.operation] = &event;
    }
    origin_ = std::min(origin_, begin_);
  }

  std::string text() {
    name_tracks();
    for (const TracedStep& step : steps_) add_step(step);
    for (const TraceEvent& event : trace_.events)
      if (is_kept(event)) add_event(event);
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + lines_ + "\n]}\n";
  }

 private:
  [[nodiscard]] bool is_kept(const TraceEvent& event) const {
    return event.end_ns > begin_ || event.begin_ns == begin_;
  }
  [[nodiscard]] double us(int64_t ns) const { return static_cast<double>(ns - origin_) / 1000; }
  [[nodiscard]] static double us_between(int64_t from, int64_t to) {
    return static_cast<double>(to - from) / 1000;
  }

  void add(json::Object event) {
    event.push_back({"pid", kProcess});
    lines_ += (lines_.empty() ? "" : ",\n") + json::dump(json::Value(std::move(event)));
  }

  void name_tracks() {
    add({{"ph", "M"},
         {"name", "process_name"},
         {"tid", kStepsTrack},
         {"args", json::Object{{"name", "tandem"}}}});
    name_track(kStepsTrack, "steps");
    for (size_t i = 0; i < trace_.tracks.size(); ++i) {
      constexpr const char* kKinds[] = {"stream ", "lane ", ""};
      const TraceTrack& track = trace_.tracks[i];
      name_track(kFirstTrack + i, kKinds[static_cast<size_t>(track.kind)] + track.name);
    }
  }
  void name_track(size_t number, const std::string& name) {
    add({{"ph", "M"}, {"name", "thread_name"}, {"tid", number}, {"args", json::Object{{"name", name}}}});
    add({{"ph", "M"},
         {"name", "thread_sort_index"},
         {"tid", number},
         {"args", json::Object{{"sort_index", number}}}});
  }

  void add_step(const TracedStep& step) {
    add({{"ph", "X"},
         {"name", fmt::format("step {}", step.step + 1)},
         {"cat", "step"},
         {"tid", kStepsTrack},
         {"ts", us(step.from_ns)},
         {"dur", us_between(step.from_ns, step.to_ns)},
         {"args",
          json::Object{{"step", step.step + 1}, {"version_lag", step.lag}, {"skipped", step.skipped}}}});
  }

  void add_event(const TraceEvent& event) {
    const bool work = event.kind == TraceEvent::Kind::work, wait = event.kind == TraceEvent::Kind::wait;
    const char* const idle = wait ? "wait" : "idle";
    add({{"ph", "X"},
         {"name", work ? label(event) : idle},
         {"cat", work ? name_of(trace_.tracks[event.track].purpose) : idle},
         {"tid", kFirstTrack + event.track},
         {"ts", us(event.begin_ns)},
         {"dur", us_between(event.begin_ns, event.end_ns)},
         {"args", work   ? work_args(event)
                  : wait ? wait_args(event)
                         : idle_args(event)}});
    if (wait) add_arrow(event);
  }

  /// The ring speaks of blocks by their number.
  [[nodiscard]] std::string with_block_names(std::string text) const {
    constexpr std::string_view kBlock = "block ";
    const size_t at = text.find(kBlock);
    if (at == std::string::npos) return text;
    const char* const digits = text.data() + at + kBlock.size();
    BlockId block = -1;
    const auto [end, error] = std::from_chars(digits, text.data() + text.size(), block);
    if (error != std::errc() || block < 0 || block >= table_.block_count()) return text;
    return text.replace(at, static_cast<size_t>(end - text.data()) - at, table_.block(block).name);
  }

  [[nodiscard]] std::string label(const TraceEvent& event) const {
    if (event.range.empty()) return event.name;
    return fmt::format("{}: {}", with_block_names(event.range), event.name);
  }

  [[nodiscard]] json::Object work_args(const TraceEvent& event) const {
    json::Object args;
    if (event.operation != 0) {
      args.push_back({"op", event.operation});
      args.push_back({"queued_us", us(event.queued_ns)});
    }
    if (event.queued_by != 0) args.push_back({"by", event.queued_by});
    if (event.bytes != 0) args.push_back({"bytes", event.bytes});
    const std::string text = label(event);
    for (const BlockSpec& block : table_.blocks())
      if (has_words(text, block.name)) {
        args.push_back({"block", block.name});
        break;
      }
    return args;
  }

  [[nodiscard]] json::Object wait_args(const TraceEvent& event) const {
    json::Object args{{"for", awaited_by(event)}, {"idle_us", idle_us(event)}};
    if (event.operation != 0) args.push_back({"op", event.operation});
    if (event.operation != 0) args.push_back({"queued_us", us(event.queued_ns)});
    if (event.queued_by != 0) args.push_back({"by", event.queued_by});
    if (event.awaited != 0) args.push_back({"awaited", event.awaited});
    if (!event.range.empty()) args.push_back({"range", with_block_names(event.range)});
    return args;
  }

  [[nodiscard]] static json::Object idle_args(const TraceEvent& event) {
    return {{"why", event.name}, {"idle_us", idle_us(event)}};
  }
  [[nodiscard]] static json::Object idle_us(const TraceEvent& event) {
    json::Object causes;
    for (size_t i = 0; i < event.idle_ns.size(); ++i)
      if (event.idle_ns[i] != 0)
        causes.push_back({name_of(static_cast<Purpose>(i)), us_between(0, event.idle_ns[i])});
    return causes;
  }

  /// What a wait is for: a promise, an operation if it is in the trace, else a place of a stream.
  [[nodiscard]] std::string awaited_by(const TraceEvent& wait) const {
    std::string text = with_block_names(wait.awaited_text);
    const auto found = operations_.find(wait.awaited);
    if (found == operations_.end() || found->second->kind != TraceEvent::Kind::work) return text;
    const TraceEvent& awaited = *found->second;
    if (text.starts_with("promise")) return fmt::format("{}, made by {}", text, label(awaited));
    return fmt::format("{} on {}", label(awaited), trace_.tracks[awaited.track].name);
  }

  /// From the end of what was awaited to the end of the wait, where that is why it waited until then.
  void add_arrow(const TraceEvent& wait) {
    const auto found = operations_.find(wait.awaited);
    if (found == operations_.end()) return;
    const TraceEvent& from = *found->second;
    if (from.end_ns <= wait.begin_ns || from.end_ns > wait.end_ns || from.begin_ns == from.end_ns) return;
    const auto end = [&](const char* phase, const TraceEvent& event) {
      add({{"ph", phase},
           {"bp", "e"},
           {"id", arrows_},
           {"name", "wait"},
           {"cat", "wait"},
           {"tid", kFirstTrack + event.track},
           {"ts", us(event.end_ns - 1)}});
    };
    ++arrows_;
    end("s", from);
    end("f", wait);
  }

  const Trace& trace_;
  const std::span<const TracedStep> steps_;
  const ParamTable& table_;
  const int64_t begin_;
  int64_t origin_ = std::numeric_limits<int64_t>::max();
  std::unordered_map<uint64_t, const TraceEvent*> operations_;
  std::string lines_;
  int64_t arrows_ = 0;
};

}  // namespace

std::string trace_json(const Trace& trace, std::span<const TracedStep> steps, const ParamTable& table) {
  ASSERT(!steps.empty(), "a trace without steps");
  return Writer(trace, steps, table).text();
}

StepTracer::StepTracer(Device& device, const ParamTable& table, int64_t begin, int64_t end)
    : device_(device), table_(table), begin_(begin), end_(end) {}

void StepTracer::next(int64_t step) {
  if (running_ || step < begin_ || step >= end_) return;
  device_.begin_trace();
  running_ = true;
}

void StepTracer::reported(const StepReport& report) {
  const int64_t step = report.decision.step;
  const StreamTimes& times = report.times;
  if (running_ && step >= begin_ && step < end_)
    steps_.push_back({step, report.lag, report.decision.skipped, times.from_ns, times.to_ns});
  complete_ = running_ && step >= end_;
}

std::string StepTracer::steps() const {
  if (steps_.empty()) return {};
  const int64_t first = steps_.front().step + 1, last = steps_.back().step + 1;
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

std::string StepTracer::finish() {
  running_ = false;
  return trace_json(device_.end_trace(), steps_, table_);
}

}  // namespace tandem
