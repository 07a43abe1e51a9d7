#include "offload/replay.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

namespace tandem {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kNone = SIZE_MAX;     // no instance
constexpr double kTaskSeconds = 2e-6;  // of a lane's task that moves no bytes to speak of
constexpr int64_t kSteps = 8, kSettled = 4;
constexpr size_t kManyOperations = 200'000;  // of a step: then fewer steps are run
constexpr int64_t kFewSteps = 4, kFewSettled = 2;

size_t at(Resource resource) { return static_cast<size_t>(resource); }

/// Seconds of each resource alone that an operation takes.
using Amounts = std::array<double, kResources>;

/// What does not change from step to step.
struct Cost {
  Amounts amounts{};
  double alone = 0;   ///< seconds at full rate
  bool copy = false;  ///< of the link: it goes ahead of the CPU in the host's memory
};

Cost cost_of(const gpu::RecordedOperation& op, const gpu::RecordedStream& stream,
             const HardwareProfile& hardware, DType dtype) {
  Cost cost;
  const double bytes = static_cast<double>(op.read_bytes + op.written_bytes);
  const auto give = [&](Resource resource, double amount, double rate) {
    cost.amounts[at(resource)] = amount / rate;
  };
  double least = hardware.shortest_kernel_us * 1e-6;
  if (stream.lane) {
    // One that writes nothing decides something: what it declares it may read, and seldom does.
    give(Resource::dram, op.written_bytes > 0 ? bytes : 0, hardware.dram_gb_s * 1e9);
    least = kTaskSeconds;
  } else if (const bool down = op.name == "copy d2h"; down || op.name == "copy h2d") {
    cost.copy = true;
    const double moved = static_cast<double>(op.written_bytes);
    give(down ? Resource::d2h : Resource::h2d, moved, (down ? hardware.d2h_gb_s : hardware.h2d_gb_s) * 1e9);
    give(Resource::link, moved, hardware.both_gb_s * 1e9);
    give(Resource::dram, moved, hardware.dram_gb_s * 1e9);
    give(Resource::device_memory, moved, hardware.device_gb_s * 1e9);
  } else {
    give(Resource::matrix, op.flops, hardware.matrix(dtype) * 1e12);
    give(Resource::device_memory, bytes, hardware.device_gb_s * 1e9);
  }
  cost.alone = std::max(least, std::ranges::max(cost.amounts));
  return cost;
}

/// One operation of one step.
struct Instance {
  double enqueued = kNever, begin = kNever, end = kNever;
  double held = -kNever;         ///< main thread: when what it waited for before was over
  std::optional<size_t> holder;  ///< that: an instance
};

class Simulation {
 public:
  Simulation(const StepRecording& recording, const HardwareProfile& hardware, DType dtype)
      : recording_(recording),
        launch_(hardware.launch_us * 1e-6),
        count_(recording.step.size()),
        many_(count_ > kManyOperations),
        steps_(many_ ? kFewSteps : kSteps),
        orders_(recording.streams.size()),
        done_(recording.streams.size(), 0),
        instances_(count_ * static_cast<size_t>(steps_)) {
    for (size_t i = 0; i < count_; ++i) {
      const gpu::RecordedOperation& op = recording.step[i];
      costs_.push_back(cost_of(op, recording.streams.at(op.stream), hardware, dtype));
      orders_[op.stream].push_back(i);
      place_.push_back(static_cast<int64_t>(orders_[op.stream].size()));
      if (op.task) enqueued_by_[*op.task].push_back(i);
    }
    for (size_t s = 0; s < recording.streams.size(); ++s)
      if (recording.streams[s].purpose == Purpose::compute) compute_ = s;
  }

  Replay run() {
    while (begin_what_can(), !active_.empty() || main_end_ < kNever) advance();
    for (size_t s = 0; s < orders_.size(); ++s)
      ASSERT(done_[s] == steps_ * std::ssize(orders_[s]), "{} stands still at operation {}",
             recording_.streams[s].name, done_[s]);
    return result();
  }

 private:
  struct Active {
    size_t instance, stream;
    double left;  ///< of its time alone
  };

  [[nodiscard]] const gpu::RecordedOperation& op(size_t instance) const {
    return recording_.step[instance % count_];
  }
  [[nodiscard]] const Cost& cost(size_t instance) const { return costs_[instance % count_]; }
  /// How far a stream must be for a place that is meant in the step of this instance.
  [[nodiscard]] int64_t absolute(const gpu::RecordedPlace& place, size_t instance) const {
    return place.operations + static_cast<int64_t>(instance / count_) * std::ssize(orders_[place.stream]);
  }
  [[nodiscard]] bool reached(const gpu::RecordedPlace& place, size_t instance) const {
    return done_[place.stream] >= absolute(place, instance);
  }
  /// The instance that ends at a place; none for what lies before the first step.
  [[nodiscard]] std::optional<size_t> last_before(const gpu::RecordedPlace& place, size_t instance) const {
    return nth(place.stream, absolute(place, instance));
  }
  /// The n-th operation of a stream, from 1.
  [[nodiscard]] std::optional<size_t> nth(size_t stream, int64_t n) const {
    if (n < 1 || orders_[stream].empty()) return {};
    const auto per_step = std::ssize(orders_[stream]);
    return static_cast<size_t>((n - 1) / per_step) * count_ +
           orders_[stream][static_cast<size_t>((n - 1) % per_step)];
  }
  /// The one before it in its stream.
  [[nodiscard]] std::optional<size_t> predecessor(size_t instance) const {
    const size_t stream = op(instance).stream;
    return nth(stream, place_[instance % count_] - 1 +
                           static_cast<int64_t>(instance / count_) * std::ssize(orders_[stream]));
  }

  /// The main thread takes up its next operation if what it waits for before that is over.
  void main_goes_on() {
    if (main_end_ < kNever) return;
    while (main_next_ < instances_.size() && op(main_next_).task) ++main_next_;
    if (main_next_ >= instances_.size()) return;
    for (const gpu::RecordedPlace& place : op(main_next_).held) {
      if (!reached(place, main_next_)) return;
      const auto holder = last_before(place, main_next_);
      if (holder && instances_[*holder].end > instances_[main_next_].held) {
        instances_[main_next_].held = instances_[*holder].end;
        instances_[main_next_].holder = holder;
      }
    }
    main_end_ = now_ + launch_;
  }

  [[nodiscard]] bool is_active(size_t stream) const {
    return std::ranges::find(active_, stream, &Active::stream) != active_.end();
  }

  /// Begins the next operation of the stream if it may.
  bool begin(size_t stream) {
    const auto head = nth(stream, done_[stream] + 1);
    if (!head || *head >= instances_.size() || instances_[*head].enqueued > now_) return false;
    const auto& waits = op(*head).waits;
    if (!std::ranges::all_of(waits, [&](const auto& place) { return reached(place, *head); })) return false;
    instances_[*head].begin = now_;
    active_.push_back({*head, stream, cost(*head).alone});
    return true;
  }

  void begin_what_can() {
    main_goes_on();
    bool lanes_busy = false;
    for (size_t s = 0; s < orders_.size(); ++s) {
      if (is_active(s))
        lanes_busy |= recording_.streams[s].lane;
      else if (!recording_.streams[s].lane)
        begin(s);
    }
    if (lanes_busy) return;
    // Lanes take turns: the thread stays with one as long as that can go on.
    if (lane_ && begin(*lane_)) return;
    for (size_t s = 0; s < orders_.size(); ++s)
      if (recording_.streams[s].lane && begin(s)) {
        lane_ = s;
        return;
      }
  }

  /// How fast each active operation runs, as a share of its rate alone.
  [[nodiscard]] std::vector<double> speeds() const {
    std::vector<double> speeds(active_.size(), 1.0);
    const auto wants = [&](size_t i, Resource r) {
      const Cost& c = cost(active_[i].instance);
      return c.amounts[at(r)] / c.alone;
    };
    for (const Resource r :
         {Resource::matrix, Resource::device_memory, Resource::d2h, Resource::h2d, Resource::link}) {
      double all = 0;
      for (size_t i = 0; i < active_.size(); ++i) all += wants(i, r) * speeds[i];
      for (size_t i = 0; all > 1 && i < active_.size(); ++i)
        if (wants(i, r) > 0) speeds[i] /= all;
    }
    double copies = 0, cpu = 0;
    for (size_t i = 0; i < active_.size(); ++i)
      (cost(active_[i].instance).copy ? copies : cpu) += wants(i, Resource::dram) * speeds[i];
    const double for_copies = copies > 1 ? 1 / copies : 1,
                 rest = std::max(1 - copies, 0.02);  // what the CPU gets at the least
    for (size_t i = 0; i < active_.size(); ++i) {
      if (wants(i, Resource::dram) == 0) continue;
      speeds[i] *= cost(active_[i].instance).copy ? for_copies : cpu > rest ? rest / cpu : 1;
    }
    return speeds;
  }

  /// To the next moment at which something ends.
  void advance() {
    const std::vector<double> speed = speeds();
    double next = main_end_;
    for (size_t i = 0; i < active_.size(); ++i) next = std::min(next, now_ + active_[i].left / speed[i]);
    const double passed = next - now_;
    for (size_t i = 0; i < active_.size(); ++i) {
      const Cost& c = cost(active_[i].instance);
      for (size_t r = 0; r < kResources; ++r) used_[r] += c.amounts[r] / c.alone * speed[i] * passed;
      active_[i].left -= speed[i] * passed;
    }
    if (main_end_ < kNever) used_[at(Resource::launches)] += passed;
    now_ = next;
    if (main_end_ <= now_) {
      instances_[main_next_++].enqueued = main_end_;
      main_end_ = kNever;
    }
    end_what_is_done();
  }

  void end_what_is_done() {
    std::erase_if(active_, [&](const Active& active) {
      if (active.left > 1e-12 * std::max(1.0, now_) && active.left > 1e-13) return false;
      instances_[active.instance].end = now_;
      ++done_[active.stream];
      if (active.stream == compute_ && done_[compute_] % std::ssize(orders_[compute_]) == 0) end_step();
      enqueue_by_task(active);
      return true;
    });
  }

  /// What a task enqueues is there when it is done.
  void enqueue_by_task(const Active& task) {
    const auto enqueued = enqueued_by_.find({task.stream, place_[task.instance % count_]});
    if (enqueued == enqueued_by_.end()) return;
    for (const size_t i : enqueued->second) instances_[task.instance / count_ * count_ + i].enqueued = now_;
  }

  void end_step() {
    step_ends_.push_back(now_);
    used_at_.push_back(used_);
  }

  /// Why the instance had not begun before `to`: the time from `from` on, by cause.
  void explain(size_t instance, double from, double to, Replay& into) const {
    while (to > from) {
      const Instance& own = instances_[instance];
      size_t cause = predecessor(instance).value_or(kNone);
      if (cause != kNone && purpose_of(cause) == Purpose::compute) cause = kNone;
      double latest = cause == kNone ? -kNever : instances_[cause].end;
      for (const gpu::RecordedPlace& place : op(instance).waits) {
        const size_t awaited = last_before(place, instance).value_or(kNone);
        if (awaited != kNone && instances_[awaited].end > latest)
          cause = awaited, latest = instances_[awaited].end;
      }
      if (own.enqueued > latest) {
        // What the main thread did since it was held up last is its own.
        const std::optional<gpu::RecordedPlace>& task = op(instance).task;
        const double launched = task ? own.enqueued : std::max(own.held, from);
        count(Purpose::other, std::max(from, std::min(launched, to)), to, into);
        to = std::min(to, launched);
        cause = (task ? last_before(*task, instance) : own.holder).value_or(kNone);
        if (cause == kNone || to <= from) return;
      }
      if (cause == kNone) return count(Purpose::other, from, to, into);
      const double began = std::max(from, std::min(to, instances_[cause].begin));
      count(purpose_of(cause), began, to, into);
      to = began;
      instance = cause;
    }
  }

  [[nodiscard]] Purpose purpose_of(size_t instance) const {
    return recording_.streams[op(instance).stream].purpose;
  }

  static void count(Purpose purpose, double from, double to, Replay& into) {
    const double ms = (to - from) * 1e3;
    if (ms <= 0) return;
    switch (purpose) {
      case Purpose::d2h:
        into.d2h_ms += ms;
        return;
      case Purpose::adam:
        into.adam_ms += ms;
        return;
      case Purpose::h2d:
        into.h2d_ms += ms;
        return;
      default:
        into.other_ms += ms;
    }
  }

  [[nodiscard]] Replay result() const {
    const int64_t settled = many_ ? kFewSettled : kSettled;
    const auto first = static_cast<size_t>(steps_ - 1 - settled), last = static_cast<size_t>(steps_ - 1);
    const double steps = static_cast<double>(settled), span = step_ends_[last] - step_ends_[first];
    Replay replay;
    replay.step_ms = span / steps * 1e3;
    for (size_t r = 0; r < kResources; ++r) replay.busy[r] = (used_at_[last][r] - used_at_[first][r]) / span;
    for (size_t step = first + 1; step <= last; ++step)
      for (const size_t i : orders_[compute_]) {
        const size_t instance = step * count_ + i;
        const auto before = predecessor(instance);
        if (before) explain(instance, instances_[*before].end, instances_[instance].begin, replay);
      }
    for (double* ms : {&replay.d2h_ms, &replay.adam_ms, &replay.h2d_ms, &replay.other_ms}) *ms /= steps;
    for (const gpu::RecordedOperation& op : recording_.step)
      if (op.name.starts_with("adam ") && recording_.streams[op.stream].lane)
        replay.adam_bytes += static_cast<double>(op.read_bytes + op.written_bytes);
    return replay;
  }

  const StepRecording& recording_;
  const double launch_;
  const size_t count_;  ///< operations of a step
  const bool many_;
  const int64_t steps_;
  size_t compute_ = 0;
  std::vector<Cost> costs_;
  std::vector<std::vector<size_t>> orders_;  ///< [stream]: its operations of a step, in order
  std::vector<int64_t> place_;               ///< of each operation in its stream's order, from 1
  /// By the place behind a task: the operations of the step that it enqueues.
  std::map<gpu::RecordedPlace, std::vector<size_t>> enqueued_by_;
  std::vector<int64_t> done_;  ///< [stream]: operations over all steps
  std::vector<Instance> instances_;
  std::vector<Active> active_;
  double now_ = 0, main_end_ = kNever;  ///< when the main thread will have enqueued main_next_
  size_t main_next_ = 0;
  std::optional<size_t> lane_;  ///< whose turn it is
  Amounts used_{};              ///< seconds of each resource so far
  std::vector<double> step_ends_;
  std::vector<Amounts> used_at_;  ///< when each step ended
};

}  // namespace

std::string_view name_of(Resource resource) {
  constexpr std::string_view kNames[] = {"products",       "device memory", "link down", "link up",
                                         "link both ways", "host memory",   "launches"};
  return kNames[at(resource)];
}

Resource Replay::binding() const {
  return static_cast<Resource>(std::ranges::max_element(busy) - busy.begin());
}

Replay replay(const StepRecording& recording, const HardwareProfile& hardware, DType dtype) {
  ASSERT(!recording.step.empty(), "a step is replayed that has not been listed");
  return Simulation(recording, hardware, dtype).run();
}

}  // namespace tandem
