#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "cpu_adam/pool_tbb.h"
#include "cpu_adam/static_pool.h"

namespace tandem {

namespace {

constexpr int kUnbound = oneapi::tbb::task_arena::automatic;

/// The threads of one node: an arena of them, and where the caller waits for what it gave it.
struct NodeArena {
  /// The caller of run() starts in the arena whose first thread is 0; only there a slot is kept for it.
  NodeArena(int node, int first, int threads)
      : node(node),
        first(first),
        threads(threads),
        arena(oneapi::tbb::task_arena::constraints(node, threads), first == 0 ? 1 : 0) {}
  const int node;  // as oneTBB numbers it, which is hwloc's os index; or kUnbound
  const int first, threads;
  oneapi::tbb::task_arena arena;
  oneapi::tbb::task_group group;
};

/// The build's choice: AddressSanitizer ends the process when oneTBB loads its binding library (with
/// RTLD_DEEPBIND).
constexpr bool kMayBind = TANDEM_TBB_BINDS != 0;

/// True if there are several nodes and oneTBB can bind to each. Only then is its binding library asked.
bool binds_to(const Topology& topology) {
  if (!kMayBind || topology.nodes.size() < 2) return false;
  const auto known = oneapi::tbb::info::numa_nodes();
  return std::all_of(topology.nodes.begin(), topology.nodes.end(), [&](const NumaNode& node) {
    return std::find(known.begin(), known.end(), node.os_index) != known.end();
  });
}

class TbbPool : public StaticPool {
 public:
  TbbPool(int threads, const Topology& topology, std::string reason)
      : StaticPool(threads),
        reason_(std::move(reason)),
        // oneTBB's own limit counts cpus and knows no device.threads.
        limit_(oneapi::tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads)) {
    if (!binds_to(topology)) {
      arenas_.push_back(std::make_unique<NodeArena>(kUnbound, 0, threads));
      return;
    }
    const std::vector<int> shares = threads_per_node(topology, threads);
    int first = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] == 0) continue;
      arenas_.push_back(std::make_unique<NodeArena>(topology.nodes[i].os_index, first, shares[i]));
      first += shares[i];
    }
  }

  [[nodiscard]] int nodes() const override { return static_cast<int>(arenas_.size()); }
  [[nodiscard]] std::string describe() const override {
    std::string map = arenas_.size() > 1 ? "" : ", one arena";
    if (arenas_.size() > 1)
      for (const auto& a : arenas_) map += fmt::format(", {} on node {}", a->threads, a->node);
    return fmt::format("{} threads, oneTBB{}{}{}", count(), map, reason_.empty() ? "" : ": ", reason_);
  }

 protected:
  void spread(const std::function<void(int)>& share) override {
    for (const auto& a : arenas_)
      a->arena.execute([&] { a->group.run([&share, node = a.get()] { spread_in(*node, share); }); });
    for (const auto& a : arenas_) a->arena.execute([&] { a->group.wait(); });
  }

 private:
  static void spread_in(const NodeArena& node, const std::function<void(int)>& share) {
    oneapi::tbb::parallel_for(
        node.first, node.first + node.threads, 1, [&](int k) { share(k); },
        oneapi::tbb::static_partitioner{});
  }

  const std::string reason_;
  oneapi::tbb::global_control limit_;
  std::vector<std::unique_ptr<NodeArena>> arenas_;
};

}  // namespace

std::unique_ptr<Workers> make_tbb_pool(int threads, const Topology& topology, std::string reason) {
  return std::make_unique<TbbPool>(threads, topology, std::move(reason));
}

}  // namespace tandem
