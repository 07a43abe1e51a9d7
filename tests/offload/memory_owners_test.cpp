// Who first touches a page of the optimizer's planes, and who updates what is on it: on a machine with
// several NUMA nodes the page lies where the first one runs. Both are observed, the one by which pages become
// resident, the other by which bytes change, while threads run one after the other.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cpu_adam/host_memory.h"
#include "gpu/backend.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/golden_weights.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::FormulaTokens;

/// Workers with the shares of StaticPool, whose threads run one after the other on the caller's.
class OneByOne : public Workers {
 public:
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void before_run() = 0;
    virtual void after_share(int thread) = 0;
  };
  explicit OneByOne(int threads) : threads_(threads) {}
  void watch(Watcher* watcher) { watcher_ = watcher; }
  [[nodiscard]] int count() const override { return threads_; }
  [[nodiscard]] std::string describe() const override { return "one by one"; }
  void run(int64_t tasks, const std::function<void(int64_t)>& task) override {
    if (watcher_ != nullptr) watcher_->before_run();
    for (int k = 0; k < threads_; ++k) {
      for (int64_t i = tasks * k / threads_; i < tasks * (k + 1) / threads_; ++i) task(i);
      if (watcher_ != nullptr) watcher_->after_share(k);
    }
  }

 private:
  const int threads_;
  Watcher* watcher_ = nullptr;
};

/// One allocation, page by page.
struct Region {
  std::string scope;
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::vector<int> toucher;               ///< of each page
  std::vector<std::vector<int>> updated;  ///< bytes of each page, by thread
  std::vector<std::byte> before;          ///< what was there when it was last looked at
};

/// Host memory that looks at what the threads do to it.
class WatchedMemory : public HostMemory, public OneByOne::Watcher {
 public:
  /// obey: the use is heard; else every buffer is touched in equal parts.
  WatchedMemory(OneByOne& workers, bool obey) : workers_(workers), obey_(obey) { workers.watch(this); }
  ~WatchedMemory() override { workers_.watch(nullptr); }

  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override {
    return allocate_for(bytes, scope, {});
  }
  [[nodiscard]] Buffer allocate_for(size_t bytes, std::string_view scope, const BufferUse& use) override {
    auto mapping = std::make_unique<Mapping>(bytes);
    Region& region = regions_.emplace_back();
    region.scope = scope;
    region.data = static_cast<std::byte*>(mapping->data);
    region.bytes = bytes;
    region.toucher.assign((bytes + page() - 1) / page(), -1);
    region.updated.assign(region.toucher.size(), std::vector<int>(static_cast<size_t>(workers_.count())));
    touching_ = true;
    first_touch(workers_, {region.data, bytes}, obey_ ? use.ranges : std::vector<StaticRange>{});
    touching_ = false;
    return Buffer(std::move(mapping));
  }
  [[nodiscard]] const MemoryCounters& counters() const override { return counters_; }

  /// From here on the bytes are looked at that change.
  void look_at_updates() { updating_ = true; }
  void before_run() override {
    if (!updating_) return;
    for (Region& region : regions_)
      if (is_plane(region)) region.before.assign(region.data, region.data + region.bytes);
  }
  void after_share(int thread) override {
    if (touching_) note_touched(regions_.back(), thread);
    if (!updating_) return;
    for (Region& region : regions_)
      if (is_plane(region)) note_updated(region, static_cast<size_t>(thread));
  }

  /// Of each plane, in the order of allocation: the share of its pages whose toucher updates as much of them
  /// as anyone, of all pages with bytes that have changed. Planes with too few pages to have an owner for
  /// most of them are left out.
  [[nodiscard]] std::vector<std::pair<std::string, double>> shares_at_home() const {
    std::vector<std::pair<std::string, double>> shares;
    for (const Region& region : regions_) {
      if (!is_plane(region) ||
          region.toucher.size() < kPagesPerThread * static_cast<size_t>(workers_.count()))
        continue;
      size_t updated = 0, at_home = 0;
      for (size_t i = 0; i < region.toucher.size(); ++i) {
        const std::vector<int>& by = region.updated[i];
        const int most = *std::max_element(by.begin(), by.end());
        if (most == 0) continue;
        ++updated;
        if (by.at(static_cast<size_t>(region.toucher[i])) == most) ++at_home;
      }
      EXPECT_GT(updated, region.toucher.size() / 3) << region.scope << ": too little has changed";
      shares.emplace_back(region.scope, static_cast<double>(at_home) / static_cast<double>(updated));
    }
    return shares;
  }

 private:
  class Mapping : public Buffer::Allocation {
   public:
    explicit Mapping(size_t size) {
      data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      bytes = size;
      madvise(data, size, MADV_NOHUGEPAGE);
    }
    ~Mapping() override { munmap(data, bytes); }
  };

  static constexpr size_t kPagesPerThread = 16;
  static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  static bool is_plane(const Region& region) {
    for (const char* scope : {"master", "exp_avg", "exp_avg_sq", "slots"})
      if (region.scope == scope) return true;
    return false;
  }
  static void note_touched(Region& region, int thread) {
    std::vector<unsigned char> resident(region.toucher.size());
    ASSERT_EQ(mincore(region.data, region.bytes, resident.data()), 0);
    for (size_t i = 0; i < resident.size(); ++i)
      if ((resident[i] & 1) != 0 && region.toucher[i] < 0) region.toucher[i] = thread;
  }
  static void note_updated(Region& region, size_t thread) {
    for (size_t i = 0; i < region.toucher.size(); ++i) {
      const size_t begin = i * page(), n = std::min(page(), region.bytes - begin);
      std::byte *now = region.data + begin, *before = region.before.data() + begin;
      if (std::memcmp(now, before, n) == 0) continue;
      for (size_t at = 0; at < n; ++at) region.updated[i][thread] += now[at] != before[at] ? 1 : 0;
      std::memcpy(before, now, n);
    }
  }

  OneByOne& workers_;
  const bool obey_;
  bool touching_ = false, updating_ = false;
  std::vector<Region> regions_;
  MemoryCounters counters_;
};

class FormulaWeights : public WeightSource {
 public:
  void read(const ParamSpec& spec, int64_t first, std::span<float> out) override {
    std::vector<float> whole(static_cast<size_t>(spec.numel));
    golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), whole);
    std::copy_n(whole.begin() + first, out.size(), out.begin());
  }
};

struct Case {
  const char* name = "";
  int64_t hidden = 256, intermediate = 512, vocab = 512, layers = 2;
  MasterFormat masters = MasterFormat::fp32;
  MomentFormat moments = MomentFormat::fp32;
  std::vector<std::string> no_decay = {}, freeze = {};
  testing::Where where = testing::Where::host;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

/// One step of a whole engine.
std::vector<std::pair<std::string, double>> shares_of(const Case& c, int threads, bool obey) {
  EngineOptions options;
  options.arch = testing::tiny_arch(false);
  options.arch.hidden = c.hidden;
  options.arch.intermediate = c.intermediate;
  options.arch.vocab = c.vocab;
  options.arch.layers = c.layers;
  options.arch.head_dim = c.hidden / options.arch.heads;
  options.dtype = DType::bf16;
  options.masters = c.masters;
  options.moments = c.moments;
  options.no_decay = c.no_decay;
  options.freeze = c.freeze;
  options.where = c.where;
  const ParamTable table(options.arch, options.no_decay, options.freeze);
  const TrainSetup setup = testing::setup_of(options, table);
  const auto others = make_workers(PoolKind::plain, 2);
  const auto device = gpu::open("host", {others.get(), testing::kDeviceMemory, {}, false});
  OneByOne workers(threads);
  WatchedMemory memory(workers, obey);
  FormulaWeights weights;
  FreshPlanes planes(weights);
  Trainer trainer(setup, table, *device, memory, workers, {StepPolicy::initial(setup.policy), {}}, planes);
  memory.look_at_updates();
  const FormulaTokens batch(options, 0);
  trainer.step(batch.view());
  trainer.quiesce();
  return memory.shares_at_home();
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {.name = "fp32"},
      {.name = "decay_ranges", .no_decay = {"*.mlp.up_proj.*", "*.v_proj.*"}},
      {.name = "odd_shapes", .hidden = 232, .intermediate = 331, .vocab = 379},
      {.name = "frozen", .freeze = {"*.q_proj.*", "model.embed_tokens.*"}},
      {.name = "mixed", .where = testing::Where::mixed},
      {.name = "bf16_moments", .moments = MomentFormat::bf16},
      // A page holds the scales of 65536 elements.
      {.name = "int8_moments",
       .hidden = 512,
       .intermediate = 2048,
       .vocab = 1024,
       .layers = 1,
       .moments = MomentFormat::int8},
      {.name = "split", .masters = MasterFormat::split},
      {.name = "ulp8_int8", .masters = MasterFormat::ulp8, .moments = MomentFormat::int8},
  };
  return all;
}

class MemoryOwners : public ::testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(MemoryOwners, TouchTheirPagesFirst) {
  const auto& [c, threads] = GetParam();
  const auto shares = shares_of(c, threads, true);
  EXPECT_GE(shares.size(), 4u);  // masters, two moments, slots
  for (const auto& [scope, share] : shares) EXPECT_GE(share, 0.95) << scope;
}

TEST(MemoryOwnersOfScales, AreAmongThem) {
  const auto is_int8 = [](const Case& c) { return std::string_view(c.name) == "int8_moments"; };
  EXPECT_EQ(shares_of(*std::ranges::find_if(cases(), is_int8), 4, true).size(), 6u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MemoryOwners,
                         ::testing::Combine(::testing::ValuesIn(cases()), ::testing::Values(2, 3, 4, 8)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_threads", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

/// The mutant: buffers that are touched in equal parts.
TEST(MemoryOwnersOfEqualParts, AreOthers) {
  for (const Case& c : cases())
    for (const auto& [scope, share] : shares_of(c, 2, false)) EXPECT_LT(share, 0.9) << c.name << " " << scope;
}

}  // namespace
}  // namespace tandem
