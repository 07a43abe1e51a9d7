#include "gpu/host/runtime.h"

namespace tandem::gpu {

namespace {

std::shared_ptr<Moment> moment_of(const Fence& fence) {
  // The runtime made it, and made it mutable: it is the runtime that lets it pass.
  return std::const_pointer_cast<Moment>(std::dynamic_pointer_cast<const Moment>(fence.state()));
}

}  // namespace

void Moment::wait() const { owner->wait(*this); }

// ---- queues

void Runtime::open(WorkQueue& queue) {
  Lock lock(mutex_);
  throw_failure();
  queue.actor = actors_++;
  queues_.reserve(queues_.size() + 1);
  started(lock, queue);
  queues_.push_back(&queue);
}

void Runtime::close(WorkQueue& queue) noexcept {
  Lock lock(mutex_);
  drain(lock, queue);
  acting().clock.join(queue.clock);
  std::erase(queues_, &queue);
}

void Runtime::enqueue(WorkQueue& queue, Work work) {
  Lock lock(mutex_);
  throw_failure();
  Clock clock = queue.clock;
  clock.join(acting().clock);
  const uint64_t tick = clock.tick(queue.actor);
  Operation operation{Operation::Kind::work, std::move(work.label), queue.range_of(acting().actor)};
  if (check_order_) {
    const Event event{queue.actor, tick, std::make_shared<const std::string>(queue.describe(operation))};
    accesses_.check(event, clock, work.accesses);
    accesses_.note(event, clock, work.accesses);
  }
  queue.clock = clock;
  operation.body = std::move(work.body);
  operation.clock = std::move(clock);
  operation.bytes = work.bytes;
  append(lock, queue, std::move(operation));
}

Fence Runtime::record(WorkQueue& queue) {
  Lock lock(mutex_);
  throw_failure();
  queue.clock.join(acting().clock);
  auto moment = std::make_shared<Moment>(shared_from_this(), queue.actor, describe_here(queue), queue.last,
                                         queue.clock);
  append(lock, queue, {.kind = Operation::Kind::record, .label = {"", "record"}, .moment = moment});
  return Fence(std::move(moment));
}

void Runtime::wait(WorkQueue& queue, const Fence& fence) {
  if (fence.state() == nullptr) return;
  auto moment = moment_of(fence);
  ASSERT(moment != nullptr && moment->owner.get() == this, "{} waits for a fence of another device",
         describe(queue, "wait"));
  Lock lock(mutex_);
  throw_failure();
  queue.clock.join(acting().clock);
  const bool redundant = queue.clock.covers(moment->clock);
  if (tracing_waits_) waits_.push_back({describe_here(queue), moment->text, redundant});
  if (is_dropped(queue, moment)) return;
  queue.clock.join(moment->clock);
  append(lock, queue, {.kind = Operation::Kind::wait, .label = {"", "wait"}, .moment = moment});
}

void Runtime::range(WorkQueue& queue, std::string_view name) {
  const Lock lock(mutex_);
  throw_failure();
  queue.ranges[acting().actor] = name;
}

std::string Runtime::describe(const WorkQueue& queue, std::string_view operation) {
  const Lock lock(mutex_);
  return fmt::format("{} on {}", operation, describe_here(queue));
}

StreamTimes Runtime::times(const WorkQueue& queue, const Fence& from, const Fence& to) const {
  const auto first = moment_of(from);
  const auto last = moment_of(to);
  ASSERT(first && last && first->owner.get() == this && last->owner.get() == this &&
             first->stream == queue.actor && last->stream == queue.actor,
         "times of stream \"{}\" between fences of another stream", queue.name);
  ASSERT(first->passed() && last->passed(), "times of stream \"{}\" up to a fence that has not passed",
         queue.name);
  const Lock lock(mutex_);
  ASSERT(first->when.spent.at <= last->when.spent.at,
         "times of stream \"{}\" from a later fence to an earlier one", queue.name);
  return times_between(first->when.spent, last->when.spent);
}

void Runtime::append(Lock& lock, WorkQueue& queue, Operation operation) {
  operation.queued = steady_now();
  if (operation.kind != Operation::Kind::record) queue.last = operation.number = ++operations_;
  if (trace_) operation.queued_by = task_here();
  if (queue.operations.empty() && queue.running == nullptr) operation.source = past_here();
  queue.operations.push_back(std::move(operation));
  appended(lock, queue);
}

void Runtime::run_head(Lock& lock, WorkQueue& queue) {
  std::list<Operation> taken;  // out of the queue, so that a failure elsewhere does not drop it
  taken.splice(taken.begin(), queue.operations, queue.operations.begin());
  Operation& operation = taken.front();
  queue.running = &operation;
  queue.runner->running = &queue;
  if (operation.source) queue.runner->meter.starved_until(operation.queued, *operation.source);
  switch (operation.kind) {
    case Operation::Kind::work:
      run_body(lock, queue, operation);
      break;
    case Operation::Kind::wait:
      queue.runner->meter.waited_until(steady_now(), operation.queued, operation.moment->when);
      break;
    case Operation::Kind::record:
      pass(queue, *operation.moment);
      break;
  }
  if (trace_) trace_->add(queue, operation);
  queue.running = nullptr;
  queue.runner->running = nullptr;
}

void Runtime::run_body(Lock& lock, WorkQueue& queue, Operation& operation) {
  queue.runner->meter.idle_until(steady_now());
  std::exception_ptr failure;
  lock.unlock();
  try {
    if (operation.body) operation.body();
  } catch (...) {
    failure = std::current_exception();
  }
  operation.body = nullptr;  // what it holds may come back here when it goes
  lock.lock();
  queue.runner->meter.busy_until(steady_now());
  if (failure) fail_locked(lock, std::move(failure));
}

void Runtime::pass(WorkQueue& queue, Moment& moment) {
  queue.runner->meter.idle_until(steady_now());
  moment.when = queue.runner->meter.passed();
  moment.has_passed.store(true, std::memory_order_release);
  for (WorkQueue* other : queues_)
    if (!other->operations.empty() && other->operations.front().moment.get() == &moment) unblocked(*other);
  changed();
}

// ---- what threads do themselves

bool Runtime::in_task() {
  const Lock lock(mutex_);
  return running_here() != nullptr;
}

Runtime::Acting Runtime::acting() {
  if (WorkQueue* queue = running_here()) {
    Operation& operation = *queue->running;
    return {operation.clock, queue->actor, queue->describe(operation)};
  }
  HostThread& host = host_here();
  return {host.clock, host.actor, "a host thread"};
}

Runtime::HostThread& Runtime::host_here() {
  const auto [host, is_new] = hosts_.try_emplace(std::this_thread::get_id());
  if (is_new) host->second.actor = actors_++;
  return host->second;
}

Passed Runtime::past_here() {
  if (const WorkQueue* queue = running_here()) {
    Meter meter = queue->runner->meter;  // its own is brought up to date when the task ends
    meter.busy_until(steady_now());
    return meter.passed();
  }
  HostThread& host = host_here();
  host.meter.busy_until(steady_now());
  return host.meter.passed();
}

void Runtime::wait(const Moment& moment) {
  Lock lock(mutex_);
  const WorkQueue* queue = running_here();
  ASSERT(queue == nullptr, "{} waits for a fence of {}: a task must not", queue->describe(*queue->running),
         moment.text);
  HostThread& host = host_here();
  const Nanos begin = steady_now();
  host.meter.busy_until(begin);
  trace_doing(host);
  block(lock, "a fence of " + moment.text, [&] { return moment.passed(); });
  host.meter.waited_until(steady_now(), begin, moment.when);
  trace_wait(host, begin, moment.after, moment.text);
  host.clock.join(moment.clock);
}

void Runtime::fulfil(PromiseState& promise, Fence fence) {
  const Lock lock(mutex_);
  ASSERT(!promise.fence, "promise \"{}\" is fulfilled twice", promise.name);
  promise.fence = std::move(fence);
  promise.clock = acting().clock;
  promise.past = past_here();
  promise.fulfilled_by = task_here();
  changed();
}

Fence Runtime::recorded(PromiseState& promise) {
  Lock lock(mutex_);
  HostThread* const host = running_here() == nullptr ? &host_here() : nullptr;
  const Nanos begin = steady_now();
  const std::string text = fmt::format("promise \"{}\"", promise.name);
  if (host != nullptr) host->meter.busy_until(begin), trace_doing(*host);
  block(lock, text, [&] { return promise.fence.has_value(); });
  if (host != nullptr) {
    host->meter.waited_until(steady_now(), begin, promise.past);
    trace_wait(*host, begin, promise.fulfilled_by, text);
  }
  acting().clock.join(promise.clock);
  return *promise.fence;
}

void Runtime::touch(std::string_view what, const Access& access) {
  const Lock lock(mutex_);
  throw_failure();
  touch_locked(what, access);
}

void Runtime::touch_locked(std::string_view what, const Access& access) {
  if (!check_order_) return;
  const Acting here = acting();
  // A host thread's events are its accesses; a task's accesses are part of the task.
  const uint64_t tick = running_here() != nullptr ? here.clock.at(here.actor) : here.clock.tick(here.actor);
  const Event event{here.actor, tick,
                    std::make_shared<const std::string>(fmt::format("{} by {}", what, here.text))};
  accesses_.check(event, here.clock, std::span(&access, 1));
  accesses_.note(event, here.clock, std::span(&access, 1));
}

void Runtime::release(std::string_view what, uintptr_t begin, uintptr_t end) noexcept {
  Lock lock(mutex_);
  try {
    if (!failure_) touch_locked(what, {begin, end, true});
  } catch (...) {
    fail_locked(lock, std::current_exception());
  }
  accesses_.forget(begin, end);
}

// ---- traces

void Runtime::range(std::string_view name) {
  const Lock lock(mutex_);
  if (!trace_) return;
  HostThread& host = host_here();
  host.meter.busy_until(steady_now());
  trace_doing(host);
  host.range = name;
}

void Runtime::begin_trace() {
  const Lock lock(mutex_);
  throw_failure();
  HostThread& host = host_here();
  host.meter.busy_until(steady_now());
  host.range.clear();
  trace_.emplace(host.actor);
  host.meter.keep_slices(true);
  for (WorkQueue* queue : queues_) trace_->track(*queue);
}

Trace Runtime::end_trace() {
  const Lock lock(mutex_);
  ASSERT(trace_.has_value(), "a trace ends that has not begun");
  for (auto& [id, host] : hosts_) {
    if (host.actor != trace_->main()) continue;
    host.meter.busy_until(steady_now());
    trace_doing(host);
    host.meter.keep_slices(false);
  }
  for (WorkQueue* queue : queues_) queue->runner->meter.keep_slices(false);
  Trace trace = trace_->take();
  trace_.reset();
  return trace;
}

uint64_t Runtime::task_here() {
  const WorkQueue* queue = running_here();
  return queue == nullptr ? 0 : queue->running->number;
}

void Runtime::trace_doing(HostThread& host) {
  if (trace_ && host.actor == trace_->main()) trace_->add_doing(host.meter.take_slices(), host.range);
}

void Runtime::trace_wait(HostThread& host, Nanos begin, uint64_t awaited, std::string text) {
  if (!trace_ || host.actor != trace_->main()) return;
  TraceEvent wait;
  wait.awaited = awaited;
  wait.awaited_text = std::move(text);
  wait.range = host.range;
  trace_->add_wait(host.meter.take_slices(), begin, std::move(wait));
}

// ---- failure

void Runtime::fail(std::exception_ptr failure) noexcept {
  Lock lock(mutex_);
  fail_locked(lock, std::move(failure));
}

void Runtime::fail_locked(Lock& lock, std::exception_ptr failure) noexcept {
  if (failure_ || !failure) return;
  failure_ = std::move(failure);
  std::list<Operation> dropped;
  for (WorkQueue* queue : queues_) {
    dropped.splice(dropped.end(), queue->operations);
    unblocked(*queue);
  }
  changed();
  lock.unlock();  // what the bodies hold may come back here when it goes
  dropped.clear();
  if (at_failure_) at_failure_();
  lock.lock();
}

void Runtime::check() const {
  const Lock lock(mutex_);
  throw_failure();
}

// ---- for tests

void Runtime::drop_wait(size_t index) {
  const Lock lock(mutex_);
  dropped_wait_ = index;
}

bool Runtime::is_dropped(const WorkQueue& waiter, const std::shared_ptr<Moment>& moment) {
  if (dropped_wait_ == waits_seen_++) {
    dropped_moment_ = moment;
    dropped_waiter_ = waiter.actor;
  }
  return dropped_moment_.lock() == moment && dropped_waiter_ == waiter.actor;
}

void Runtime::trace_waits() {
  const Lock lock(mutex_);
  tracing_waits_ = true;
}

std::vector<WaitRecord> Runtime::waits() const {
  const Lock lock(mutex_);
  return waits_;
}

namespace {

class RuntimePromise final : public FencePromise {
 public:
  RuntimePromise(std::shared_ptr<Runtime> runtime, std::string name) : runtime_(std::move(runtime)) {
    state_.name = std::move(name);
  }
  void fulfil(Fence fence) override { runtime_->fulfil(state_, std::move(fence)); }
  [[nodiscard]] Fence recorded() override { return runtime_->recorded(state_); }

 private:
  std::shared_ptr<Runtime> runtime_;
  PromiseState state_;
};

}  // namespace

std::shared_ptr<FencePromise> make_promise(std::shared_ptr<Runtime> runtime, std::string name) {
  return std::make_shared<RuntimePromise>(std::move(runtime), std::move(name));
}

}  // namespace tandem::gpu
