// Matrix products of the host device at the shapes of a GPT-2-124M-sized step (256 rows): the tiles of
// gpu/host/linear.cpp on N threads beside one BLAS call for the whole on one thread. GFLOP/s per thread is
// the figure that tile_grid is judged by.
//   build/release/linear_bench --benchmark_filter=f32
#include <benchmark/benchmark.h>

#include <vector>

#include "cpu_adam/plain_pool.h"
#include "gpu/host/linear.h"

namespace {

using namespace tandem;
using namespace tandem::gpu;

struct Shape {
  Storage storage;
  int64_t m, n, k;
};
constexpr Shape kShapes[] = {
    {Storage::nt, 256, 768, 768},   {Storage::nt, 256, 3072, 768}, {Storage::nt, 256, 768, 3072},
    {Storage::nt, 256, 50257, 768}, {Storage::nn, 256, 768, 3072}, {Storage::nn, 256, 768, 50257},
    {Storage::tn, 768, 768, 256},   {Storage::tn, 3072, 768, 256}, {Storage::tn, 50257, 768, 256},
};

void count_flops(benchmark::State& state, const Shape& s, int threads) {
  state.counters["GFLOP/s/thread"] = benchmark::Counter(2e-9 * static_cast<double>(s.m * s.n * s.k) / threads,
                                                        benchmark::Counter::kIsIterationInvariantRate);
}

std::vector<float> ones(int64_t count) { return std::vector<float>(static_cast<size_t>(count), 1.0f); }

void tiles(benchmark::State& state, const Shape& s, DType act, int threads) {
  const auto pool = make_plain_pool(threads);
  Scratch scratch;
  std::vector<float> a = ones(s.m * s.k), b = ones(s.k * s.n), c = ones(s.m * s.n);
  const bool weights = s.storage == Storage::tn;  // dw is fp32 and added to
  const Tensor ct(c.data(), weights ? DType::f32 : act, {s.m, s.n});
  const Tensor at = weights ? Tensor(a.data(), act, {s.k, s.m}) : Tensor(a.data(), act, {s.m, s.k});
  const Tensor bt =
      s.storage == Storage::nt ? Tensor(b.data(), act, {s.n, s.k}) : Tensor(b.data(), act, {s.k, s.n});
  for (auto _ : state)
    product(*pool, {*row_kernels().front(), scratch}, s.storage, ct, at, bt,
            weights ? Into::add : Into::replace);
  count_flops(state, s, threads);
}

void whole(benchmark::State& state, const Shape& s) {
  const std::vector<float> a = ones(s.m * s.k), b = ones(s.k * s.n);
  std::vector<float> c = ones(s.m * s.n);
  const float beta = s.storage == Storage::tn ? 1.0f : 0.0f;
  for (auto _ : state)
    gemm({s.storage,
          s.m,
          s.n,
          s.k,
          1.0f,
          {a.data(), s.storage == Storage::tn ? s.m : s.k},
          {b.data(), s.storage == Storage::nt ? s.k : s.n},
          beta,
          c.data(),
          s.n});
  count_flops(state, s, 1);
}

}  // namespace

int main(int argc, char** argv) {
  check_products();  // also holds OpenBLAS at one thread a call
  for (const Shape& s : kShapes) {
    const char* storage = s.storage == Storage::nn ? "nn" : s.storage == Storage::nt ? "nt" : "tn";
    const std::string name = fmt::format("{} {}x{}x{}", storage, s.m, s.n, s.k);
    benchmark::RegisterBenchmark((name + " f32 whole").c_str(), [=](auto& state) { whole(state, s); });
    for (const int threads : {1, 2})
      for (const DType act : {DType::f32, DType::bf16})
        benchmark::RegisterBenchmark(
            fmt::format("{} {} tiles {}", name, act == DType::f32 ? "f32" : "bf16", threads).c_str(),
            [=](auto& state) { tiles(state, s, act, threads); })
            ->UseRealTime();
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
