#pragma once
// What the parts of one host device share: the queues, who has seen what, the first failure. One mutex for
// all of it; work runs outside.
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu/host/access_map.h"
#include "gpu/host/trace_log.h"
#include "gpu/host/work_queue.h"

namespace tandem::gpu {

/// Everybody waits for somebody else, or for a promise that nobody is left to fulfil.
class DeadlockError : public InternalError {
 public:
  using InternalError::InternalError;
};

/// One piece of work as it is handed in.
struct Work {
  Label label;
  std::vector<Access> accesses;
  std::function<void()> body;
  size_t bytes = 0;  ///< that a copy moves
};

/// One Stream::wait on a recorded fence.
struct WaitRecord {
  std::string waiter, fence;  ///< in words
  bool redundant = false;     ///< what it waits for was ordered before it anyway
};

/// What a promise holds; belongs to the runtime's mutex.
struct PromiseState {
  std::string name;
  std::optional<Fence> fence;
  Clock clock;                ///< of who fulfilled it
  Passed past;                ///< of who fulfilled it
  uint64_t fulfilled_by = 0;  ///< a task's number; 0: a host thread
};

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  explicit Runtime(bool check_order) : check_order_(check_order) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  virtual ~Runtime() = default;

  // ---- queues. The device's failure, if there is one, is thrown by all but close().
  void open(WorkQueue& queue);
  /// Returns when the queue is drained, or dropped by a failure. Whoever closes is ordered after what ran.
  void close(WorkQueue& queue) noexcept;
  /// OrderError if an access is not ordered after an earlier one that it conflicts with; then nothing is
  /// enqueued.
  void enqueue(WorkQueue& queue, Work work);
  [[nodiscard]] Fence record(WorkQueue& queue);
  void wait(WorkQueue& queue, const Fence& fence);
  void range(WorkQueue& queue, std::string_view name);
  [[nodiscard]] std::string describe(const WorkQueue& queue, std::string_view operation);
  [[nodiscard]] StreamTimes times(const WorkQueue& queue, const Fence& from, const Fence& to) const;

  /// Whether a task runs on the calling thread.
  [[nodiscard]] bool in_task();

  // ---- what threads do themselves; a task of a lane acts with the clock of that task
  void wait(const Moment& moment);
  void fulfil(PromiseState& promise, Fence fence);
  [[nodiscard]] Fence recorded(PromiseState& promise);
  /// The calling thread touches host memory now.
  void touch(std::string_view what, const Access& access);
  /// The memory goes away: an access of everything in it, whose OrderError poisons the device.
  void release(std::string_view what, uintptr_t begin, uintptr_t end) noexcept;

  // ---- traces, as Device says
  void range(std::string_view name);
  void begin_trace();
  [[nodiscard]] Trace end_trace();

  // ---- failure: the first one drops all queued work and is thrown to every waiter
  void fail(std::exception_ptr failure) noexcept;
  void check() const;
  /// Once, after the device has failed, on the thread that noticed. Set before there are queues; must not
  /// throw.
  void at_failure(std::function<void()> action) { at_failure_ = std::move(action); }

  // ---- for tests: what if a wait were missing
  void drop_wait(size_t index);
  void trace_waits();
  [[nodiscard]] std::vector<WaitRecord> waits() const;

 protected:
  using Lock = std::unique_lock<std::mutex>;
  /// A queue opens; it is not registered yet.
  virtual void started(Lock&, WorkQueue&) {}
  /// Something was put at a queue's end.
  virtual void appended(Lock& lock, WorkQueue& queue) = 0;
  /// The head of this queue may have become runnable, or all of it was dropped.
  virtual void unblocked(WorkQueue&) noexcept {}
  /// Something that block() may wait for has changed.
  virtual void changed() noexcept {}
  /// Returns when the queue is empty and nothing of it runs.
  virtual void drain(Lock& lock, WorkQueue& queue) noexcept = 0;
  /// Blocks the calling thread until done(); throws the failure of the device.
  virtual void block(Lock& lock, std::string_view what, const std::function<bool()>& done) = 0;
  /// The queue whose operation the calling thread runs, or null.
  virtual WorkQueue* running_here() = 0;

  /// Takes the head of a queue, which must be runnable, and runs it. The mutex is released meanwhile.
  void run_head(Lock& lock, WorkQueue& queue);
  [[nodiscard]] std::string describe_here(const WorkQueue& queue) {
    return queue.describe(queue.range_of(acting().actor));
  }
  void throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  mutable std::mutex mutex_;
  std::vector<WorkQueue*> queues_;
  std::exception_ptr failure_;

 private:
  /// Who acts on the calling thread: a host thread, or the operation it runs.
  struct Acting {
    Clock& clock;
    Actor actor;
    std::string text;
  };
  Acting acting();
  void touch_locked(std::string_view what, const Access& access);
  [[nodiscard]] bool is_dropped(const WorkQueue& waiter, const std::shared_ptr<Moment>& moment);
  void append(Lock& lock, WorkQueue& queue, Operation operation);
  void run_body(Lock& lock, WorkQueue& queue, Operation& operation);
  void pass(WorkQueue& queue, Moment& moment);
  void fail_locked(Lock& lock, std::exception_ptr failure) noexcept;

  struct HostThread {
    Actor actor = 0;
    Clock clock;
    std::string range;
    Meter meter{Purpose::other, steady_now()};  ///< its waits are idle time, all else is its own
  };
  HostThread& host_here();
  /// What the calling thread, or the operation that runs on it, has been doing.
  Passed past_here();
  /// The number of the task that runs on the calling thread; 0: none does.
  uint64_t task_here();
  /// Keeps what this host thread has been doing, up to now, or its wait, if it is traced.
  void trace_doing(HostThread& host);
  void trace_wait(HostThread& host, Nanos begin, uint64_t awaited, std::string text);
  const bool check_order_;
  Actor actors_ = 0;
  uint64_t operations_ = 0;  ///< numbers them
  std::map<std::thread::id, HostThread> hosts_;
  AccessMap accesses_;
  std::optional<TraceLog> trace_;
  std::function<void()> at_failure_;

  size_t waits_seen_ = 0;
  std::optional<size_t> dropped_wait_;
  std::weak_ptr<Moment> dropped_moment_;  ///< what that wait was for (a moment owns its runtime),
  Actor dropped_waiter_ = 0;              ///< and who waited
  bool tracing_waits_ = false;
  std::vector<WaitRecord> waits_;
};

/// A promise of a device whose threads and lanes are this runtime's.
std::shared_ptr<FencePromise> make_promise(std::shared_ptr<Runtime> runtime, std::string name);

/// Real concurrency: one thread per runner.
std::shared_ptr<Runtime> make_threaded_runtime(bool check_order);

/// No threads at all: at every enqueue, and as long as the host blocks, a seeded generator picks the next
/// operation among the runnable heads and runs it on the calling thread. A seed replays. One host thread
/// only. Order is checked. A host that blocks while nothing is runnable gets a DeadlockError, which poisons
/// the device.
std::shared_ptr<Runtime> make_chaos_runtime(uint64_t seed);

}  // namespace tandem::gpu
