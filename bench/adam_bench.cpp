// The optimizer pass on the CPU beside the speed of memory. For every state format and number of threads, in
// turns: one pass, then the same planes moved as the pass moves them (loads, stores and loads that are stored
// again, by vectors of the same width) with nothing computed, twice. The second of these two over the first
// is the noise of the machine. Weights go over the gradient, bf16 both.
//   ./dev bench adam_bench [--parameters 64000000] [--threads 1,2] [--formats fp32+fp32,ulp8+int8] [--json
//   FILE]
// With --on-demand: passes when another program asks for them, so that it can take turns with others.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>

#include "bench/isa/streams.h"
#include "core/device/host_limits.h"
#include "core/io/json.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/host_memory.h"
#include "cpu_adam/make_workers.h"

namespace {

using namespace tandem;

struct Options {
  std::string json;
  int64_t parameters = 0;
  std::vector<int> threads;
  std::vector<StateFormat> formats;
  int rounds = 15;
  bool on_demand = false;
};

/// Times of one thing, in seconds.
class Samples {
 public:
  void add(double seconds) { all_.push_back(seconds); }
  [[nodiscard]] double quantile(double q) const {
    std::vector<double> sorted = all_;
    std::sort(sorted.begin(), sorted.end());
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
  }
  [[nodiscard]] double median() const { return quantile(0.5); }
  /// Between the quartiles, over the median.
  [[nodiscard]] double spread() const { return (quantile(0.75) - quantile(0.25)) / median(); }
  /// Round by round.
  [[nodiscard]] Samples over(const Samples& other) const {
    Samples ratios;
    for (size_t i = 0; i < all_.size(); ++i) ratios.add(all_[i] / other.all_[i]);
    return ratios;
  }

 private:
  std::vector<double> all_;
};

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
template <class Work>
double seconds_of(const Work& work, clockid_t clock = CLOCK_MONOTONIC) {
  const double begin = now(clock);
  work();
  return now(clock) - begin;
}

/// The planes of n parameters in one format, with bf16 gradients and weights.
class Planes {
 public:
  Planes(HostMemory& memory, Workers& workers, StateFormat format, int64_t n) : format_(format), n_(n) {
    for (size_t i = 0; i < kStatePlanes; ++i)
      states_[i] = memory.allocate(plane_bytes(format, static_cast<StatePlane>(i), n), "states");
    grad_ = memory.allocate(static_cast<size_t>(n) * 2, "gradients");
    if (row_of(format.master).beside_weights) upper_ = memory.allocate(static_cast<size_t>(n) * 2, "weights");
    workers.ranges(n, 1 << 20, [&](int64_t begin, int64_t end) { fill(begin, end); });
  }
  [[nodiscard]] AdamSpans spans() const {
    const Tensor grad = grad_.tensor(DType::bf16, {n_});
    AdamSpans s{{format_, state(0), state(1), state(2), state(3), state(4)}, grad, grad};
    if (!upper_.empty()) {
      s.upper_in = upper_.tensor(DType::bf16, {n_});
      s.upper_out = grad;
    }
    return s;
  }
  [[nodiscard]] std::vector<Stream64> streams() const {
    std::vector<Stream64> streams;
    if (!upper_.empty())
      streams.push_back({static_cast<std::byte*>(upper_.raw()), 2 * 64, Stream64::Use::read});
    for (size_t i = 0; i < kStatePlanes; ++i) {
      const size_t bytes = plane_bytes(format_, static_cast<StatePlane>(i), 64);
      if (bytes > 0) streams.push_back({state(i).data(), bytes, Stream64::Use::update});
    }
    streams.push_back({static_cast<std::byte*>(grad_.raw()), 2 * 64, Stream64::Use::update});
    return streams;
  }

 private:
  [[nodiscard]] std::span<std::byte> state(size_t i) const {
    return {static_cast<std::byte*>(states_[i].raw()), states_[i].bytes()};
  }
  /// Small gradients and weights of both signs; moments of zero.
  void fill(int64_t begin, int64_t end) {
    const bool fp32 = format_.master == MasterFormat::fp32;
    for (int64_t i = begin; i < end; ++i) {
      const Philox r = philox(1, static_cast<uint64_t>(i), 0);
      const auto value = [](uint32_t bits, float scale) {
        return scale * (static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f);
      };
      static_cast<bf16*>(grad_.raw())[i] = to_bf16(value(r.x[0], 1e-3f));
      if (fp32)
        static_cast<float*>(states_[0].raw())[i] = value(r.x[1], 0.1f);
      else
        static_cast<bf16*>(upper_.raw())[i] = to_bf16(value(r.x[1], 0.1f));
    }
  }

  StateFormat format_;
  int64_t n_;
  std::array<Buffer, kStatePlanes> states_;
  Buffer grad_, upper_;
};

/// Passes over the planes of one format, one update after the other.
class Passes {
 public:
  Passes(HostMemory& memory, Workers& workers, StateFormat format, Isa isa, int64_t n)
      : workers_(workers), isa_(isa), planes_(memory, workers, format, n) {}
  void run() {
    ++t_;
    adam(workers_, isa_, planes_.spans(), Decay::decoupled,
         adam_scalars({.weight_decay = 0.1}, 1e-7, t_, 1.0, 1.0), 0.0f, {{1, 2, t_}, 0});
  }
  [[nodiscard]] std::vector<Stream64> streams() const { return planes_.streams(); }

 private:
  Workers& workers_;
  Isa isa_;
  Planes planes_;
  uint32_t t_ = 0;
};

struct Row {
  StateFormat format;
  Isa isa;
  int threads;
  int64_t parameters;
  double first = 0;  ///< seconds of the first pass over fresh planes
  Samples pass, ceiling, again;
  double cpu_share =
      0;  ///< processor time of all passes over their time and threads; 1: the machine was ours

  [[nodiscard]] double ns_per_param() const { return 1e9 * pass.median() / static_cast<double>(parameters); }
  [[nodiscard]] double gb_per_s(double seconds) const {
    const double bytes = bytes_read(format, DType::bf16) + bytes_written(format, DType::bf16);
    return 1e-9 * bytes * static_cast<double>(parameters) / seconds;
  }
  [[nodiscard]] double share() const { return ceiling.over(pass).median(); }
  [[nodiscard]] json::Value as_json() const {
    const auto rounded = [](double x) { return std::round(1e4 * x) / 1e4; };
    return json::Object{{"format", name_of(format)},
                        {"isa", name_of(isa)},
                        {"threads", threads},
                        {"parameters", parameters},
                        {"ns_per_param", rounded(ns_per_param())},
                        {"gb_per_s", rounded(gb_per_s(pass.median()))},
                        {"ceiling_gb_per_s", rounded(gb_per_s(ceiling.median()))},
                        {"ceiling_share", rounded(share())},
                        {"spread", rounded(pass.spread())},
                        {"ceiling_over_itself", rounded(again.over(ceiling).median())},
                        {"ceiling_over_itself_spread", rounded(again.over(ceiling).spread())},
                        {"cpu_share", rounded(cpu_share)},
                        {"first_over_later", rounded(first / pass.median())}};
  }
};

void move_streams(Isa isa, const std::vector<Stream64>& streams, int64_t begin, int64_t end) {
  switch (isa) {
    case Isa::avx512:
      return move_streams_64(streams, begin, end);
    case Isa::avx2:
      return move_streams_32(streams, begin, end);
    case Isa::neon:
    case Isa::scalar:
      return move_streams_16(streams, begin, end);
  }
}

Row measure(StateFormat format, Isa isa, int threads, int64_t n, int rounds) {
  const auto workers = make_workers(usual_pool(), threads);
  const auto memory = make_host_memory(*workers);
  Passes passes(*memory, *workers, format, isa, n);
  const std::vector<Stream64> streams = passes.streams();
  const auto pass = [&] { passes.run(); };
  const auto ceiling = [&] {
    workers->ranges(n / 64, 256, [&](int64_t begin, int64_t end) { move_streams(isa, streams, begin, end); });
  };
  Row row{format, isa, threads, n, 0, {}, {}, {}, 0};
  row.first = seconds_of(pass);
  ceiling();
  double busy = 0, whole = 0;
  for (int i = 0; i < rounds; ++i) {
    busy += seconds_of(
        [&] {
          const double seconds = seconds_of(pass);
          row.pass.add(seconds);
          whole += seconds;
        },
        CLOCK_PROCESS_CPUTIME_ID);
    row.ceiling.add(seconds_of(ceiling));
    row.again.add(seconds_of(ceiling));
  }
  row.cpu_share = busy / (whole * threads);
  return row;
}

void print(const Row& row) {
  fmt::print("{:12} {:7} {:7} {:9.3f} {:7.2f} {:8.2f} {:7.3f} {:7.3f} {:8.3f} {:7.3f} {:7.2f} {:7.2f}\n",
             name_of(row.format), name_of(row.isa), row.threads, row.ns_per_param(),
             row.gb_per_s(row.pass.median()), row.gb_per_s(row.ceiling.median()), row.share(),
             row.pass.spread(), row.again.over(row.ceiling).median(), row.again.over(row.ceiling).spread(),
             row.first / row.pass.median(), row.cpu_share);
  std::fflush(stdout);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// 64 million, or what fits into a third of the memory that is free: 16 bytes each.
int64_t usual_parameters() {
  const auto fit = static_cast<int64_t>(probe_host_limits().resident_bytes() / 3 / 16);
  return std::max<int64_t>(std::min<int64_t>(64'000'000, fit) / 64 * 64, 64);
}

/// Every format on the CPU's best instruction set; plain fp32 on each.
std::vector<Row> measure_all(const Options& options) {
  std::vector<Row> rows;
  fmt::print(
      "format       isa     threads  ns/param    GB/s  ceiling   share  spread  A/A      spread   first   "
      "cpu\n");
  for (const int threads : options.threads)
    for (const StateFormat format : options.formats)
      for (const Isa isa : usable_isas()) {
        if (isa != usable_isas().back() && format != StateFormat{}) continue;
        rows.push_back(measure(format, isa, threads, options.parameters, options.rounds));
        print(rows.back());
      }
  return rows;
}

/// A line about what there is; then, for each line of stdin, a format's name, one pass and a line with its
/// seconds. All planes are there from the start and have been passed over once.
void serve(const Options& options) {
  CHECK(options.threads.size() == 1, Status::usage,
        fmt::format("--on-demand with {} numbers of threads", options.threads.size()), "command line",
        "name one, as in --threads 2");
  const auto workers = make_workers(usual_pool(), options.threads.front());
  const auto memory = make_host_memory(*workers);
  const Isa isa = usable_isas().back();
  std::map<std::string, Passes> passes;
  json::Object bytes;
  for (const StateFormat format : options.formats) {
    passes.try_emplace(name_of(format), *memory, *workers, format, isa, options.parameters)
        .first->second.run();
    bytes.push_back({name_of(format), json::Object{{"read", bytes_read(format, DType::bf16)},
                                                   {"written", bytes_written(format, DType::bf16)}}});
  }
  std::cout << json::dump(json::Object{{"isa", name_of(isa)},
                                       {"parameters", options.parameters},
                                       {"threads", workers->count()},
                                       {"bytes", std::move(bytes)}})
            << std::endl;
  for (std::string name; std::getline(std::cin, name);) {
    const auto asked = passes.find(name);
    CHECK(asked != passes.end(), Status::usage, fmt::format("no planes of \"{}\"", name), "stdin",
          "add it to --formats");
    std::cout << json::dump(seconds_of([&] { asked->second.run(); })) << std::endl;
  }
}

StateFormat format_named(const std::string& name) {
  const auto all = all_state_formats();
  const auto* found = std::ranges::find_if(all, [&](StateFormat format) { return name_of(format) == name; });
  CHECK(found != all.end(), Status::usage, fmt::format("unknown format \"{}\"", name), "--formats",
        "MASTERS+MOMENTS of fp32, split, ulp8 and fp32, bf16, int8");
  return *found;
}

void write_json(const std::string& path, const std::vector<Row>& rows, const std::string& command) {
  json::Array all;
  for (const Row& row : rows) all.push_back(row.as_json());
  const auto workers = make_workers(usual_pool(), 0);
  const json::Value out =
      json::Object{{"rows", std::move(all)},
                   {"machine", json::Object{{"cpu", cpu_name()}, {"workers", workers->describe()}}},
                   {"command", command}};
  std::ofstream file(path);
  file << json::dump(out, 1) << "\n";
  CHECK(file.good(), Status::failed, fmt::format("can't write {}", path), path,
        "name a file in a folder that exists and is writable");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("The Adam pass in every state format beside the speed of memory");
  app.add_option("--json", options.json, "Write the rows to this file, too");
  app.add_option("--parameters", options.parameters, "Parameters of a pass, rounded down to a multiple of 64")
      ->check(CLI::Range(int64_t{64}, int64_t{1} << 40));
  app.add_option("--threads", options.threads, "Numbers of threads (default: 1 and all)")->delimiter(',');
  std::vector<std::string> formats;
  app.add_option("--formats", formats, "Masters+moments (default: all)")->delimiter(',');
  app.add_flag("--on-demand", options.on_demand,
               "One pass for each format's name on stdin; prints its seconds");
  app.add_option("--rounds", options.rounds, "Passes of each row")->check(CLI::Range(9, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    options.parameters = options.parameters == 0 ? usual_parameters() : options.parameters / 64 * 64;
    if (options.threads.empty()) {
      const int all = make_workers(usual_pool(), 0)->count();
      for (int threads = 1; threads < all; threads *= 2) options.threads.push_back(threads);
      options.threads.push_back(all);
    }
    for (const std::string& name : formats) options.formats.push_back(format_named(name));
    if (formats.empty()) std::ranges::copy(all_state_formats(), std::back_inserter(options.formats));
    if (options.on_demand) {
      serve(options);
      return 0;
    }
    std::string command;
    for (int i = 0; i < argc; ++i) command += std::string(i > 0 ? " " : "") + argv[i];
    const std::vector<Row> rows = measure_all(options);
    if (!options.json.empty()) write_json(options.json, rows, command);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
