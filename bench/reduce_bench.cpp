// cpu_adam/host_reduce on every instruction set of this CPU beside the speed of memory: for each pass a row
// "ceiling", which moves the same bytes by the widest vectors with nothing computed.
//   ./dev bench reduce_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
#include <benchmark/benchmark.h>

#include "bench/isa/streams.h"
#include "cpu_adam/host_memory.h"
#include "cpu_adam/host_reduce.h"
#include "cpu_adam/make_workers.h"

namespace {

using namespace tandem;

constexpr int64_t kElements = 64 << 20;

/// By the widest vectors that this CPU has. (Asked once: in a virtual machine CPUID takes microseconds.)
decltype(&move_streams_16) widest_streams() {
  const Isa isa = usable_isas().back();
  return isa == Isa::avx512 ? move_streams_64 : isa == Isa::avx2 ? move_streams_32 : move_streams_16;
}

/// The workers of one number of threads (plain ones: oneTBB lets only one pool have its number), and an fp32
/// plane and one of any type, first touched by them.
struct Machine {
  explicit Machine(int threads)
      : workers(make_workers(PoolKind::plain, threads)), memory(make_host_memory(*workers)) {}
  std::unique_ptr<Workers> workers;
  std::unique_ptr<HostMemory> memory;
  decltype(&move_streams_16) move = widest_streams();
  Buffer wide = memory->allocate(kElements * 4, "fp32");
  Buffer narrow = memory->allocate(kElements * 4, "elements");
  [[nodiscard]] Tensor values() const { return wide.tensor(DType::f32, {kElements}); }
  [[nodiscard]] Tensor elements(DType dtype) const { return narrow.tensor(dtype, {kElements}); }
};

using Pass = std::function<void(const Machine&, Isa, DType)>;
struct Op {
  const char* name;
  Pass pass;
  bool wide;  // whether the fp32 plane takes part
  Stream64::Use of_values, of_elements;
};
const Op kOps[] = {
    {"sum of squares",
     [](const Machine& m, Isa isa, DType dtype) {
       benchmark::DoNotOptimize(sum_of_squares(*m.workers, isa, m.elements(dtype)));
     },
     false, Stream64::Use::read, Stream64::Use::read},
    {"round weights",
     [](const Machine& m, Isa isa, DType dtype) {
       round_weights(*m.workers, isa, m.elements(dtype), m.values());
     },
     true, Stream64::Use::read, Stream64::Use::write},
    {"widen",
     [](const Machine& m, Isa isa, DType dtype) { widen(*m.workers, isa, m.values(), m.elements(dtype)); },
     true, Stream64::Use::write, Stream64::Use::read},
};

void move_plainly(const Machine& machine, const Op& op, DType dtype) {
  std::vector<Stream64> streams{
      {static_cast<std::byte*>(machine.narrow.raw()), 64 * size_of(dtype), op.of_elements}};
  if (op.wide) streams.push_back({static_cast<std::byte*>(machine.wide.raw()), 64 * 4, op.of_values});
  machine.workers->ranges(kElements / 64, 512,
                          [&](int64_t begin, int64_t end) { machine.move(streams, begin, end); });
}

void add(const std::string& name, const Op& op, DType dtype, const std::function<void()>& work) {
  const double bytes = static_cast<double>(kElements) * (size_of(dtype) + (op.wide ? 4 : 0));
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 for (auto _ : state) work();
                                 state.counters["GB/s"] = benchmark::Counter(
                                     1e-9 * bytes, benchmark::Counter::kIsIterationInvariantRate);
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all(const Machine& machine) {
  for (const Op& op : kOps)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto name = [&](std::string_view what) {
        return fmt::format("{}, {}, {} threads, {}", op.name, name_of(dtype), machine.workers->count(), what);
      };
      for (const Isa isa : usable_isas())
        add(name(name_of(isa)), op, dtype, [&machine, &op, isa, dtype] { op.pass(machine, isa, dtype); });
      add(name("ceiling"), op, dtype, [&machine, &op, dtype] { move_plainly(machine, op, dtype); });
    }
}

}  // namespace

int main(int argc, char** argv) {
  const Machine one(1), all(0);
  add_all(one);
  if (all.workers->count() > 1) add_all(all);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
