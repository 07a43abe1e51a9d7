#include "tests/cuda_fake/state.h"

namespace tandem::cuda_fake {

State& state() {
  static auto* const only = new State;  // kernels register before main and end after it
  return *only;
}

cudaError_t fault(const std::string& text, cudaError_t status) {
  state().faults.push_back(text);
  return status;
}

cudaError_t& last_error() {
  static thread_local cudaError_t last = cudaSuccess;
  return last;
}

cudaError_t done(cudaError_t status) {
  if (status != cudaSuccess) last_error() = status;
  return status;
}

cudaError_t planted(const char* call) {
  State& fake = state();
  if (fake.sticky != cudaSuccess) return fake.sticky;
  const auto found = fake.failing_calls.find(call);
  if (found == fake.failing_calls.end()) return cudaSuccess;
  const cudaError_t status = found->second;
  fake.failing_calls.erase(found);
  return status;
}

void reset(const Settings& settings) {
  State& fake = state();
  const Lock lock(fake.mutex);
  fake.settings = settings;
  fake.random.seed(settings.seed);
  fake.faults.clear();
  fake.failing_calls.clear();
  last_error() = fake.sticky = fake.failing_work = cudaSuccess;
  fake.freed.clear();
  fake.accesses = {};
  fake.order_matters = true;
  fake.event_waits = 0;
  fake.dropped_wait = -1;
  if (!fake.streams.empty() || !fake.events.empty() || !fake.buffers.empty() || !fake.pins.empty() ||
      !fake.mapped.empty())
    (void)fault("something is left of the test before");
}

std::vector<std::string> faults() {
  const Lock lock(state().mutex);
  return state().faults;
}

void clear_faults() {
  const Lock lock(state().mutex);
  state().faults.clear();
}

Live live() {
  State& fake = state();
  const Lock lock(fake.mutex);
  Live live{fake.buffers.size(), fake.pins.size() + fake.mapped.size(), fake.streams.size(),
            fake.events.size()};
  for (const cudaStream_t stream : fake.streams) live.queued += stream->operations.size();
  return live;
}

void fail_call(const std::string& name, cudaError_t status) {
  const Lock lock(state().mutex);
  state().failing_calls[name] = status;
}

void fail_work(cudaError_t status) {
  const Lock lock(state().mutex);
  state().failing_work = status;
}

void forgive_order() {
  const Lock lock(state().mutex);
  state().order_matters = false;
}

void drop_wait(int64_t index) {
  const Lock lock(state().mutex);
  state().dropped_wait = index;
}

int64_t event_waits() {
  const Lock lock(state().mutex);
  return state().event_waits;
}

void run_kernels_by(Bind bind) {
  const Lock lock(state().mutex);
  state().bind = std::move(bind);
}

}  // namespace tandem::cuda_fake
