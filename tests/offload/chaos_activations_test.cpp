// The store of offloaded inputs by itself: what it waits for, whatever its user has waited for already.
#include <gtest/gtest.h>

#include "cpu_adam/plain_pool.h"
#include "offload/host_activations.h"
#include "offload/memory_plan.h"
#include "tests/offload/chaos_setups.h"

namespace tandem::testing {
namespace {

/// Five places of [16, 64] bf16: three layers, two micro-batches.
EngineOptions three_layers() {
  EngineOptions options;
  options.arch.layers = 3;
  options.dtype = DType::bf16;
  options.micro_batches = 2;
  options.keep = Keep::input_offloaded;
  return options;
}

/// Sends five inputs away, out of one piece of memory, and fetches them into another one, without a wait
/// between the last that is sent and the first that is fetched. dropped: the index of a wait to leave out.
/// Returns the waits.
std::vector<gpu::WaitRecord> send_and_fetch(std::optional<uint64_t> seed, std::optional<size_t> dropped) {
  constexpr int64_t kPlaces = 5;
  const EngineOptions options = three_layers();
  const ParamTable table(options.arch);
  const TrainSetup setup = setup_of(options, table);
  const auto workers = make_plain_pool(1);
  TestMemory memory;
  gpu::HostDevice device(*workers, {size_t{1} << 20, seed, true}, {});
  device.trace_waits();
  if (dropped) device.drop_wait(*dropped);
  const Buffer buffer = device.allocate(2 * 16 * 64 * 2, "inputs");
  const Tensor from = buffer.tensor(DType::bf16, {16, 64}),
               to = buffer.tensor(DType::bf16, {16, 64}, from.bytes());
  const auto compute = device.stream("compute", Purpose::compute, 0);
  HostActivations store(setup, table, device, memory);
  const auto use = [&](const char* name, std::vector<Tensor> reads, std::vector<Tensor> writes) {
    device.enqueue(*compute, {name, std::move(reads), std::move(writes), [](gpu::KernelContext&) {}});
  };
  for (int64_t place = 0; place < kPlaces; ++place) {
    use("forward", {}, {from});
    const Fence sent = store.send(place, "input", from, *compute);
    if (place + 1 < kPlaces) compute->wait(sent);  // `from` is written again
  }
  use("other work", {}, {to});
  for (int64_t place = kPlaces - 1; place >= 0; --place) {
    compute->wait(store.fetch(place, "input", to, *compute));
    use("backward", {to}, {});
  }
  compute->record().wait();
  device.check();
  return device.waits();
}

TEST(ChaosActivations, AnInputThatIsFetchedAtOnceHasLanded) {
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), {1}, {2}, {3}}) {
    const std::vector<gpu::WaitRecord> waits = send_and_fetch(seed, {});
    size_t landings = 0;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].redundant) continue;
      EXPECT_THROW(send_and_fetch(seed, i), gpu::OrderError) << waits[i].waiter << " for " << waits[i].fence;
      landings += waits[i].waiter.find("h2d_act") != std::string::npos &&
                          waits[i].fence.find("d2h_act") != std::string::npos
                      ? 1
                      : 0;
    }
    EXPECT_EQ(landings, 1u) << "the last one sent, which its user has not waited for";
  }
}

TEST(MemoryActivations, AreThePlacesAndNothingElse) {
  const EngineOptions options = three_layers();
  const ParamTable table(options.arch);
  const TrainSetup setup = setup_of(options, table);
  const auto workers = make_plain_pool(1);
  TestMemory memory;
  gpu::HostDevice device(*workers, {size_t{1} << 20, {}, true}, {});
  const HostActivations store(setup, table, device, memory);
  EXPECT_EQ(memory.counters().total().now, size_t{5} * 16 * 64 * 2);
  EXPECT_EQ(store.bytes_per_step(), size_t{5} * 16 * 64 * 2);
  EXPECT_EQ(device.counters().total().now, 0u);
}

}  // namespace
}  // namespace tandem::testing
