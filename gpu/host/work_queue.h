#pragma once
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/host/moment.h"

namespace tandem::gpu {

/// What an operation is: kernel "rms_norm_forward", or of no sort: copy.
struct Label {
  std::string sort, name;
  [[nodiscard]] std::string text() const {
    return sort.empty() ? name : fmt::format("{} \"{}\"", sort, name);
  }
};

/// One entry of a queue: work has a body, the other kinds a moment.
struct Operation {
  enum class Kind : uint8_t { work, wait, record };
  Kind kind = Kind::work;
  Label label;
  std::string range = {};
  std::function<void()> body = {};  ///< may be empty: then only its accesses count
  std::shared_ptr<Moment> moment = {};
  Clock clock = {};  ///< what has happened before it; work that acts (a lane's task) adds what it learns
  size_t bytes = 0;  ///< that a copy moves
  uint64_t number = 0, queued_by = 0;  ///< both in the device's count; by a task, or by a host thread: 0
  Nanos queued = 0;                    ///< when it was enqueued
  std::optional<Passed> source =
      {};  ///< the past of who enqueued it, where the queue had nothing to do until then

  /// False only for a wait whose moment has not passed.
  [[nodiscard]] bool runnable() const { return kind != Kind::wait || moment->passed(); }
};

struct WorkQueue;

/// Who runs the operations of a stream, or of lanes that take turns: one at a time. All of it belongs to the
/// runtime's mutex.
struct Runner {
  explicit Runner(Purpose purpose) : meter(purpose, steady_now()) {}

  std::vector<WorkQueue*> queues;  ///< those that are open; of those that may run the first one does
  WorkQueue* running = nullptr;    ///< the one whose operation runs
  Meter meter;

  // Where there are threads:
  std::condition_variable wake;  ///< something may have become runnable, or the last queue was closed
  std::condition_variable idle;  ///< a queue may have become empty
  std::thread thread;

  /// The queue to run an operation of: the one that ran last as long as it can, else the first that can; or
  /// null.
  [[nodiscard]] WorkQueue* next(const WorkQueue* last) const;
};

/// The state of one stream or lane; all of it belongs to the runtime's mutex.
struct WorkQueue {
  WorkQueue(std::string name, bool lane, std::shared_ptr<Runner> runner)
      : name(std::move(name)), lane(lane), runner(std::move(runner)) {}

  const std::string name;
  const bool lane;
  const std::shared_ptr<Runner> runner;
  Actor actor = 0;
  Clock clock;                          ///< of the last operation enqueued
  uint64_t last = 0;                    ///< its number
  std::map<Actor, std::string> ranges;  ///< name what each of them enqueues
  std::list<Operation> operations;
  Operation* running = nullptr;

  [[nodiscard]] bool runnable() const { return !operations.empty() && operations.front().runnable(); }
  [[nodiscard]] std::string range_of(Actor who) const {
    const auto range = ranges.find(who);
    return range == ranges.end() ? "" : range->second;
  }
  /// 'stream "d2h" (range "backward layer 3")', for messages.
  [[nodiscard]] std::string describe(std::string_view range) const {
    return fmt::format("{} \"{}\" (range \"{}\")", lane ? "lane" : "stream", name, range);
  }
  [[nodiscard]] std::string describe(const Operation& operation) const {
    if (operation.kind == Operation::Kind::wait) return "wait for " + operation.moment->text;
    return fmt::format("{} on {}", operation.label.text(), describe(operation.range));
  }
};

inline WorkQueue* Runner::next(const WorkQueue* last) const {
  WorkQueue* first = nullptr;
  for (WorkQueue* queue : queues) {
    if (!queue->runnable()) continue;
    if (queue == last) return queue;
    if (first == nullptr) first = queue;
  }
  return first;
}

}  // namespace tandem::gpu
