#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "adam_cases.h"
#include "core/base/error.h"
#include "cpu_adam/make_workers.h"

namespace tandem {
namespace {

/// How often each of `tasks` ran in one call.
std::vector<int> times_run(Workers& workers, int64_t tasks) {
  std::vector<std::atomic<int>> counts(static_cast<size_t>(tasks));
  workers.run(tasks, [&](int64_t i) { ++counts[static_cast<size_t>(i)]; });
  return {counts.begin(), counts.end()};
}

TEST(IdentityWorkers, EachTaskRunsExactlyOnce) {
  for (const PoolKind kind : pool_kinds())
    for (const int threads : {1, 2, 3, 8}) {
      const auto workers = make_workers(kind, threads);
      EXPECT_EQ(workers->count(), threads);
      for (const int64_t tasks : {0, 1, 2, 3, 7, 8, 9, 1000})
        EXPECT_EQ(times_run(*workers, tasks), std::vector<int>(static_cast<size_t>(tasks), 1))
            << workers->describe();
    }
}

TEST(IdentityWorkers, RangesAreCutByArgumentsAlone) {
  for (const PoolKind kind : pool_kinds())
    for (const int threads : {1, 3}) {
      std::mutex mutex;
      std::set<std::pair<int64_t, int64_t>> cuts;
      make_workers(kind, threads)->ranges(200, 64, [&](int64_t begin, int64_t end) {
        const std::lock_guard lock(mutex);
        cuts.insert({begin, end});
      });
      EXPECT_EQ(cuts, (std::set<std::pair<int64_t, int64_t>>{{0, 64}, {64, 128}, {128, 192}, {192, 200}}));
    }
}

TEST(IdentityWorkers, ThePlainPoolKeepsTasksOnTheirThreads) {
  const auto workers = make_workers(PoolKind::plain, 3);
  const auto threads_of_tasks = [&] {
    std::vector<std::thread::id> ids(10);
    workers->run(10, [&](int64_t i) { ids[static_cast<size_t>(i)] = std::this_thread::get_id(); });
    return ids;
  };
  const auto first = threads_of_tasks();
  EXPECT_EQ(first, threads_of_tasks());
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 3u);
  EXPECT_EQ(first[0], std::this_thread::get_id());  // the caller works too
  EXPECT_EQ(first[2], first[0]);                    // thread 0: tasks 0 .. 10/3
  EXPECT_NE(first[3], first[0]);
}

TEST(IdentityWorkers, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  for (const PoolKind kind : pool_kinds()) {
    const auto workers = make_workers(kind, 3);
    for (const int64_t thrower : {0, 5, 8}) {
      const auto run = [&] {
        workers->run(9, [&](int64_t i) { CHECK(i != thrower, Status::failed, fmt::format("task {}", i)); });
      };
      try {
        run();
        ADD_FAILURE() << "nothing thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.message(), fmt::format("task {}", thrower));
      }
    }
    EXPECT_EQ(times_run(*workers, 20), std::vector<int>(20, 1));
  }
}

TEST(IdentityWorkers, ACallFromInsideATaskIsAnErrorNotADeadlock) {
  for (const PoolKind kind : pool_kinds())
    for (const int threads : {1, 2, 3}) {
      const auto workers = make_workers(kind, threads);
      std::atomic<int> refused{0};
      for (const int64_t tasks : {1, 6}) {
        refused = 0;
        workers->run(tasks, [&](int64_t) {
          try {
            workers->run(2, [](int64_t) {});
          } catch (const InternalError&) {
            ++refused;
          }
        });
        EXPECT_EQ(refused, tasks) << workers->describe();
      }
      EXPECT_THROW(workers->run(6, [&](int64_t) { workers->run(0, [](int64_t) {}); }), InternalError);
      EXPECT_EQ(times_run(*workers, 6), std::vector<int>(6, 1));
    }
}

TEST(IdentityWorkers, ConcurrentCallersTakeTurns) {
  for (const PoolKind kind : pool_kinds()) {
    const auto workers = make_workers(kind, 2);
    std::atomic<int> current{-1}, mixed{0}, done{0};
    const auto caller = [&](int id) {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int> ended{0};
        workers->run(8, [&](int64_t) {
          int expected = -1;
          // The first task of a call claims the pool; every other one must find that claim.
          if (!current.compare_exchange_strong(expected, id) && expected != id) ++mixed;
          ++done;
          if (++ended == 8) current = -1;
        });
      }
    };
    std::vector<std::thread> callers;
    for (int id = 0; id < 3; ++id) callers.emplace_back(caller, id);
    for (std::thread& thread : callers) thread.join();
    EXPECT_EQ(done, 3 * 50 * 8);
    EXPECT_EQ(mixed, 0);
  }
}

TEST(IdentityWorkers, CallersOnOneThreadMayAlternateBetweenPools) {
  const auto a = make_workers(PoolKind::plain, 2), b = make_workers(usual_pool(), 2);
  std::atomic<int> inner{0};
  a->run(2, [&](int64_t) { b->run(3, [&](int64_t) { ++inner; }); });  // other workers: not nested
  EXPECT_EQ(inner, 6);
}

/// In a fresh process, because oneTBB reads the topology once.
int exit_code_of_synthetic_nodes() {
  setenv("HWLOC_SYNTHETIC", "numa:2 core:2 pu:1", 1);
  const auto workers = make_workers(PoolKind::tbb, 0);
  for (int round = 0; round < 20; ++round)
    if (times_run(*workers, 101) != std::vector<int>(101, 1)) return 1;
  if (workers->count() != 4) return 2;
  // Where oneTBB sees the nodes there is an arena for each.
  if (workers->describe().find("2 on node 0, 2 on node 1") == std::string::npos) return 3;
  if (workers->nodes() != 2) return 4;
  return 0;
}

TEST(IdentityWorkersDeathTest, OneArenaPerSyntheticNode) {
  if (usual_pool() != PoolKind::tbb) GTEST_SKIP() << "a build without oneTBB";
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "oneTBB's binding library can't be loaded under AddressSanitizer";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(exit_code_of_synthetic_nodes()), testing::ExitedWithCode(0), "");
}

TEST(ConfigWorkers, ABuildWithoutTbbSaysSo) {
  if (usual_pool() == PoolKind::tbb) GTEST_SKIP() << "a build with oneTBB";
  EXPECT_THROW(make_workers(PoolKind::tbb, 1), Error);
}

TEST(ConfigWorkers, DescribeSaysThreadsPoolAndWhy) {
  Topology topology;
  topology.nodes = {{0, 4}};
  topology.threads = 4;
  topology.reason = "4 of 8 physical cores allowed";
  EXPECT_EQ(make_workers(PoolKind::plain, 0, topology)->describe(),
            "4 threads, plain pool: 4 of 8 physical cores allowed");
  EXPECT_EQ(make_workers(PoolKind::plain, 0, topology)->nodes(), 1);
  EXPECT_EQ(make_workers(PoolKind::plain, 6, topology)->describe(),
            "6 threads, plain pool: asked for, 4 allowed; 4 of 8 physical cores allowed");
  EXPECT_EQ(make_workers(PoolKind::plain, 2, topology)->describe(),
            "2 threads, plain pool: asked for; 4 of 8 physical cores allowed");
}

}  // namespace
}  // namespace tandem
