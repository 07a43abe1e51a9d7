// Streams and events, and the scheduler that runs what is in them.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/cuda_fake/state.h"

namespace tandem::cuda_fake {

namespace {

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The operation runs now: a fault if it touches what is not ordered before it.
void note_order(CUstream_st& stream, const Operation& operation) {
  State& fake = state();
  stream.clock.join(operation.known);
  if (operation.waits_for_host) stream.clock.join(fake.host);  // whoever let it pass had seen this
  const gpu::Event event{stream.actor, stream.clock.tick(stream.actor),
                         std::make_shared<const std::string>(operation.text)};
  if (operation.accesses.empty() || !fake.order_matters) return;
  try {
    fake.accesses.check(event, stream.clock, operation.accesses);
  } catch (const gpu::OrderError& error) {
    (void)fault(error.what());
  }
  fake.accesses.note(event, stream.clock, operation.accesses);
}

bool runnable(const Operation& operation) { return !operation.ready || operation.ready(); }

/// Runs one of the heads that can run, any of them. False if there is none.
bool run_one() {
  State& fake = state();
  std::vector<cudaStream_t> ready;
  for (const cudaStream_t stream : fake.streams)
    if (!stream->operations.empty() && runnable(stream->operations.front())) ready.push_back(stream);
  if (ready.empty()) return false;
  const cudaStream_t stream = ready[fake.random() % ready.size()];
  const Operation operation = std::move(stream->operations.front());
  stream->operations.pop_front();
  note_order(*stream, operation);
  if (operation.is_work && fake.failing_work != cudaSuccess) {
    fake.sticky = fake.failing_work;
    fake.failing_work = cudaSuccess;
  } else if (operation.run) {
    operation.run();
  }
  return true;
}

bool any_waits_for_host() {
  for (const cudaStream_t stream : state().streams)
    if (!stream->operations.empty() && stream->operations.front().waits_for_host) return true;
  return false;
}

bool known(cudaStream_t stream, const char* what) {
  if (state().streams.contains(stream)) return true;
  (void)fault(stream == nullptr ? fmt::format("{} on the default stream", what)
                                : fmt::format("{} on a stream that does not live", what));
  return false;
}

bool known(cudaEvent_t event, const char* what) {
  if (state().events.contains(event)) return true;
  (void)fault(fmt::format("{} of an event that does not live", what));
  return false;
}

bool recorded(cudaEvent_t event, const char* what) {
  if (!known(event, what)) return false;
  if (event->last != nullptr) return true;
  (void)fault(fmt::format("{} of an event that was never recorded", what));
  return false;
}

/// cuStreamWaitValue32, for "at least".
int wait_value(cudaStream_t stream, unsigned long long address, uint32_t value, unsigned flags) {
  FAKE_CALL(cuStreamWaitValue32);
  if (!known(stream, "wait for a value")) return cudaErrorInvalidValue;
  for (const auto& [body, mapping] : fake.mapped) {
    const auto offset = address - reinterpret_cast<uintptr_t>(mapping->face());
    if (offset >= mapping->bytes() || offset % sizeof(uint32_t) != 0 || flags != 0) continue;
    auto* word = reinterpret_cast<uint32_t*>(mapping->body() + offset);
    return done(enqueue(stream, {.text = "wait for a value",
                                 .uses = {{mapping->body() + offset, sizeof(uint32_t)}},
                                 .ready =
                                     [word, value] {
                                       const auto seen =
                                           std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire);
                                       return static_cast<int32_t>(seen - value) >= 0;
                                     },
                                 .waits_for_host = true}));
  }
  return done(fault("wait for a value that is not in mapped memory"));
}

}  // namespace

void run_a_little() {
  for (uint64_t runs = state().random() % 3; runs > 0 && run_one(); --runs) {
  }
}

cudaError_t enqueue(cudaStream_t stream, Operation operation) {
  if (!known(stream, operation.text.c_str())) return cudaErrorInvalidResourceHandle;
  operation.known = state().host;
  stream->operations.push_back(std::move(operation));
  run_a_little();
  return cudaSuccess;
}

cudaError_t run_until(Lock& lock, const std::string& what, const std::function<bool()>& condition) {
  while (!condition()) {
    if (state().sticky != cudaSuccess) return state().sticky;
    if (run_one()) continue;
    if (!any_waits_for_host()) return fault("deadlock: " + what + ", and nothing can run");
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    lock.lock();
  }
  return state().sticky;
}

std::shared_ptr<bool> hold(cudaStream_t stream) {
  const Lock lock(state().mutex);
  const auto flag = std::make_shared<bool>(false);
  (void)enqueue(stream, {.text = "held work", .ready = [flag] { return *flag; }});
  return flag;
}

std::string user_of(const std::byte* begin, size_t bytes) {
  for (const cudaStream_t stream : state().streams)
    for (const Operation& operation : stream->operations)
      for (const Span& span : operation.uses)
        if (span.begin < begin + bytes && begin < span.begin + span.bytes) return operation.text;
  return {};
}

}  // namespace tandem::cuda_fake

using namespace tandem::cuda_fake;  // NOLINT: the C interface of the runtime is global

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CALL(cudaDeviceGetStreamPriorityRange);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  FAKE_CALL(cudaStreamCreateWithPriority);
  if (flags != cudaStreamNonBlocking) return done(fault("a stream that waits for the default stream"));
  if (priority > 0 || priority < -5) return done(fault(fmt::format("a stream of priority {}", priority)));
  *stream = new CUstream_st;
  (*stream)->actor = fake.actors++;
  fake.streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  State& fake = state();
  const Lock lock(fake.mutex);
  if (!known(stream, "destruction")) return done(cudaErrorInvalidResourceHandle);
  if (!stream->operations.empty() && fake.sticky == cudaSuccess)
    (void)fault("a stream is destroyed before it ran " + stream->operations.front().text);
  fake.streams.erase(stream);
  delete stream;
  return done(fake.sticky);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_CALL(cudaStreamSynchronize);
  if (!known(stream, "synchronization")) return done(cudaErrorInvalidResourceHandle);
  const cudaError_t status =
      run_until(lock, "the end of a stream", [&] { return stream->operations.empty(); });
  if (status == cudaSuccess) fake.host.join(stream->clock);
  return done(status);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAKE_CALL(cudaStreamWaitEvent);
  if (!recorded(event, "a wait")) return done(cudaErrorInvalidValue);
  if (fake.event_waits++ == fake.dropped_wait) return cudaSuccess;
  return done(
      enqueue(stream, {.text = "wait for an event",
                       .ready = [recording = event->last] { return recording->passed; },
                       .run = [recording = event->last, stream] { stream->clock.join(recording->clock); },
                       .event = event}));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FAKE_CALL(cudaEventCreateWithFlags);
  if (flags != cudaEventBlockingSync) return done(fault("an event that threads spin on, or without a time"));
  *event = new CUevent_st;
  fake.events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  State& fake = state();
  const Lock lock(fake.mutex);
  if (!known(event, "destruction")) return done(cudaErrorInvalidResourceHandle);
  for (const cudaStream_t stream : fake.streams)
    for (const Operation& operation : stream->operations)
      if (operation.event == event && fake.sticky == cudaSuccess)
        (void)fault("an event is destroyed before " + operation.text);
  fake.events.erase(event);
  delete event;
  return done(fake.sticky);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_CALL(cudaEventRecord);
  if (!known(event, "a record")) return done(cudaErrorInvalidResourceHandle);
  auto recording = std::make_shared<Recording>();
  event->last = recording;
  return done(enqueue(stream, {.text = "record of an event",
                               .run =
                                   [recording, stream] {
                                     recording->clock = stream->clock;
                                     recording->ns = steady_ns();
                                     recording->passed = true;
                                   },
                               .event = event}));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_CALL(cudaEventQuery);
  if (!recorded(event, "a query")) return done(cudaErrorInvalidResourceHandle);
  run_a_little();
  if (fake.sticky != cudaSuccess) return done(fake.sticky);
  if (!event->last->passed) return done(cudaErrorNotReady);
  fake.host.join(event->last->clock);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_CALL(cudaEventSynchronize);
  if (!recorded(event, "a wait")) return done(cudaErrorInvalidResourceHandle);
  const auto recording = event->last;
  const cudaError_t status = run_until(lock, "an event", [&] { return recording->passed; });
  if (status == cudaSuccess) fake.host.join(recording->clock);
  return done(status);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  FAKE_CALL(cudaEventElapsedTime);
  if (!recorded(start, "the time") || !recorded(end, "the time")) return done(cudaErrorInvalidResourceHandle);
  if (!start->last->passed || !end->last->passed)
    return done(fault("the time of an event that has not passed", cudaErrorNotReady));
  *ms = static_cast<float>(end->last->ns - start->last->ns) * 1e-6f;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long, cudaDriverEntryPointQueryResult* result) {
  FAKE_CALL(cudaGetDriverEntryPointByVersion);
  const bool found = std::string(symbol) == "cuStreamWaitValue32" && version >= 12000 &&
                     fake.settings.stream_memory_operations;
  *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  auto* const wait = &wait_value;
  *function = nullptr;
  if (found) std::memcpy(function, &wait, sizeof wait);
  return cudaSuccess;
}

}  // extern "C"
