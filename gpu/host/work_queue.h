#pragma once
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "gpu/host/moment.h"

namespace tandem::gpu {

/// One entry of a queue: work has a body, the other kinds a moment.
struct Operation {
  enum class Kind : uint8_t { work, wait, record };
  Kind kind = Kind::work;
  std::string text;            ///< 'copy on stream "d2h" (range "backward layer 3")', for messages
  std::function<void()> body;  ///< may be empty: then only its accesses count
  std::shared_ptr<Moment> moment;
  Clock clock;       ///< what has happened before it; work that acts (a lane's task) adds what it learns
  Nanos queued = 0;  ///< when it was enqueued
  std::optional<Passed>
      source;  ///< the past of who enqueued it, where the queue had nothing to do until then

  /// False only for a wait whose moment has not passed.
  [[nodiscard]] bool runnable() const { return kind != Kind::wait || moment->passed(); }
};

/// The state of one stream or lane; all of it belongs to the runtime's mutex.
struct WorkQueue {
  WorkQueue(std::string name, Purpose purpose, bool lane)
      : name(std::move(name)), lane(lane), meter(purpose, steady_now()) {}

  const std::string name;
  const bool lane;
  Actor actor = 0;
  Clock clock;        ///< of the last operation enqueued
  std::string range;  ///< names what is enqueued
  std::list<Operation> operations;
  Operation* running = nullptr;
  Meter meter;

  // Of the queue's own thread, where there are threads.
  bool closing = false;
  std::condition_variable wake;
  std::thread thread;

  [[nodiscard]] bool runnable() const { return !operations.empty() && operations.front().runnable(); }
  [[nodiscard]] std::string describe() const {
    return fmt::format("{} \"{}\" (range \"{}\")", lane ? "lane" : "stream", name, range);
  }
};

}  // namespace tandem::gpu
