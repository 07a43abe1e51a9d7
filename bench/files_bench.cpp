// Rates of loading a model folder (by reads, by a memory map) and of saving one, beside plain reads and
// writes of the same bytes. The rounds of all cases are mixed; the lines are the median of the rounds and
// their coefficient of variation. GB/s = 1e9 stored bytes a second. "cold": the page cache was told to let
// the files go.
//   ./dev bench files_bench [--folder DIR] [--gib 1] [--benchmark_repetitions=5]
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/base/dtype.h"
#include "core/io/atomic_file.h"
#include "core/io/model_folder.h"

namespace {

using namespace tandem;
namespace fs = std::filesystem;

constexpr size_t kPiece = 4 << 20;

/// What the files are filled with: finite bf16 values.
std::vector<std::byte> some_weights() {
  std::vector<std::byte> bytes(kPiece);
  uint32_t x = 1;
  for (size_t i = 0; i < kPiece; i += sizeof(bf16)) {
    x = x * 1664525u + 1013904223u;
    const bf16 value = to_bf16(static_cast<float>(static_cast<int32_t>(x)) * 1e-11f);
    std::memcpy(&bytes[i], &value, sizeof value);
  }
  return bytes;
}

/// A llama folder of about so many bytes of bf16, made in a folder and removed with it at the end.
class Bench {
 public:
  Bench(const fs::path& parent, double gib) : folder_(parent / fmt::format("files_bench.{}", ::getpid())) {
    fs::create_directories(model());
    fs::create_directories(out());
    // A layer of hidden 2048 has 103 MB, the embedding 131 MB.
    const auto layers = std::max<int64_t>(1, static_cast<int64_t>((gib * 1.0737e9 - 131e6) / 103e6 + 0.5));
    write_atomically(model() / "config.json",
                     fmt::format(R"({{"model_type":"llama","hidden_size":2048,"intermediate_size":5632,
"num_hidden_layers":{},"num_attention_heads":16,"vocab_size":32000,"tie_word_embeddings":true}})",
                                 layers));
    table_.emplace(read_arch(model()));
    bytes_ = static_cast<uint64_t>(table_->parameter_count()) * sizeof(bf16);
    largest_.resize(32000 * 2048);
    save(model());
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

  void load(FileAccess access) {
    const ModelFolder folder(model(), access);
    for (const ParamSpec& spec : table_->params())
      folder.read(spec, 0, std::span(largest_).first(static_cast<size_t>(spec.numel)), NonFinite::refuse);
  }
  void read_plainly() {
    const Descriptor file(::open(weights().c_str(), O_RDONLY));
    ssize_t got = 0;
    do got = ::read(file.get(), piece_.data(), piece_.size());
    while (got > 0);
    CHECK(got == 0, Status::failed, "cannot read", weights());
  }
  void save() { save(out()); }
  void write_plainly() {
    const std::string path = out() / "plain";
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
    for (uint64_t done = 0; done < bytes_; done += kPiece) {
      const size_t count = std::min<uint64_t>(kPiece, bytes_ - done);
      CHECK(::write(file.get(), fill_.data(), count) == static_cast<ssize_t>(count), Status::failed,
            "cannot write", path);
    }
    CHECK(::fsync(file.get()) == 0, Status::failed, "cannot sync", path);
  }
  void forget_model() const {
    const Descriptor file(::open(weights().c_str(), O_RDONLY));
    CHECK(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0, Status::failed, "no advice taken",
          weights());
  }
  void remove_output() const {
    for (const auto& entry : fs::directory_iterator(out())) fs::remove(entry.path());
  }

 private:
  [[nodiscard]] fs::path model() const { return folder_ / "model"; }
  [[nodiscard]] fs::path out() const { return folder_ / "out"; }
  [[nodiscard]] std::string weights() const { return model() / "model.safetensors"; }
  void save(const fs::path& to) {
    save_weights(
        to, *table_, DType::bf16, {},
        [&](const ParamSpec&, int64_t, std::span<std::byte> part) {
          std::memcpy(part.data(), fill_.data(), part.size());
        },
        UINT64_MAX);
  }
  fs::path folder_;
  std::optional<ParamTable> table_;
  uint64_t bytes_ = 0;
  const std::vector<std::byte> fill_ = some_weights();
  std::vector<std::byte> piece_ = std::vector<std::byte>(kPiece);
  std::vector<float> largest_;
};

void add(const std::string& name, const Bench& bench, std::function<void()> prepare,
         std::function<void()> work) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [&bench, prepare, work](benchmark::State& state) {
                                 for (auto _ : state) {
                                   state.PauseTiming();
                                   prepare();
                                   state.ResumeTiming();
                                   work();
                                 }
                                 state.counters["GB/s"] =
                                     benchmark::Counter(1e-9 * static_cast<double>(bench.bytes()),
                                                        benchmark::Counter::kIsIterationInvariantRate);
                               })
      ->Iterations(1)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all(Bench& bench) {
  const auto warm = [&] { bench.read_plainly(); };
  const auto cold = [&] { bench.forget_model(); };
  const auto empty = [&] { bench.remove_output(); };
  const std::pair<const char*, std::function<void()>> caches[] = {{"warm", warm}, {"cold", cold}};
  for (const auto& [cache, prepare] : caches) {
    add(fmt::format("plain read, {}", cache), bench, prepare, [&] { bench.read_plainly(); });
    add(fmt::format("load by reads, {}", cache), bench, prepare, [&] { bench.load(FileAccess::sequential); });
    add(fmt::format("load by mmap, {}", cache), bench, prepare, [&] { bench.load(FileAccess::mapped); });
  }
  add("plain write and fsync", bench, empty, [&] { bench.write_plainly(); });
  add("save", bench, empty, [&] { bench.save(); });
}

}  // namespace

int main(int argc, char** argv) {
  // Those given on the command line come later and win.
  std::vector<std::string> words = {argv[0], "--benchmark_repetitions=5",
                                    "--benchmark_enable_random_interleaving=true",
                                    "--benchmark_display_aggregates_only=true"};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  CLI::App app("Rates of loading and saving a model folder, beside plain copies");
  std::string folder = fs::temp_directory_path();
  double gib = 1;
  app.add_option("--folder", folder, "Where the files are made, on the disk to be measured");
  app.add_option("--gib", gib, "Size of the model's file")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, count, arguments.data());
  try {
    Bench bench(folder, gib);
    add_all(bench);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
