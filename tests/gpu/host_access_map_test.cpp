// The interval map against one entry per byte.
#include <random>
#include <set>

#include "gpu/host/access_map.h"

#include <gtest/gtest.h>

namespace tandem::gpu {
namespace {

constexpr uintptr_t kBytes = 48;
constexpr Actor kActors = 4;

/// Remembers every access of every byte for ever.
struct PerByte {
  struct Seen {
    Actor actor;
    uint64_t tick;
    bool write;
  };
  std::vector<std::vector<Seen>> bytes{kBytes};

  [[nodiscard]] bool conflicts(const Clock& clock, const Access& access) const {
    for (uintptr_t i = access.begin; i < access.end; ++i)
      for (const Seen& seen : bytes[i])
        if ((seen.write || access.write) && clock.at(seen.actor) < seen.tick) return true;
    return false;
  }
  void note(Actor actor, uint64_t tick, const Access& access) {
    for (uintptr_t i = access.begin; i < access.end; ++i) bytes[i].push_back({actor, tick, access.write});
  }
};

TEST(Fuzz, AccessMapFindsTheConflictsOfASlowOne) {
  std::mt19937_64 random(20240607);
  const auto below = [&](uint64_t n) { return random() % n; };
  int conflicts = 0;
  int passes = 0;
  for (int round = 0; round < 200; ++round) {
    AccessMap map;
    PerByte slow;
    std::vector<Clock> clocks(kActors);
    for (int step = 0; step < 60; ++step) {
      const auto actor = static_cast<Actor>(below(kActors));
      if (below(3) == 0) clocks[actor].join(clocks[below(kActors)]);
      Clock clock = clocks[actor];
      const uint64_t tick = clock.tick(actor);
      std::vector<Access> accesses;
      for (uint64_t n = 1 + below(2); n > 0; --n) {
        const uintptr_t begin = below(kBytes);
        accesses.push_back({begin, begin + below(kBytes - begin + 1), below(2) == 0});
      }
      const Event event{actor, tick, std::make_shared<const std::string>("step " + std::to_string(step))};
      bool expected = false;
      for (const Access& access : accesses) expected = expected || slow.conflicts(clock, access);
      bool found = false;
      try {
        map.check(event, clock, accesses);
      } catch (const OrderError&) {
        found = true;
      }
      ASSERT_EQ(found, expected) << "round " << round << " step " << step;
      ++(expected ? conflicts : passes);
      if (expected) continue;
      map.note(event, clock, accesses);
      for (const Access& access : accesses) slow.note(actor, tick, access);
      clocks[actor] = clock;
      if (below(20) == 0) {
        const uintptr_t begin = below(kBytes);
        const uintptr_t end = begin + below(kBytes - begin + 1);
        map.forget(begin, end);
        for (uintptr_t i = begin; i < end; ++i) slow.bytes[i].clear();
      }
      ASSERT_LE(map.pieces(), kBytes);
    }
  }
  EXPECT_GT(conflicts, 1000);
  EXPECT_GT(passes, 1000);
}

TEST(Fuzz, AccessMapStaysSmall) {
  AccessMap map;
  Clock clock;
  for (int i = 0; i < 1000; ++i) {
    const auto begin = static_cast<uintptr_t>(i % 10);
    const Access accesses[] = {{begin, 100, false}, {0, 100, true}};
    map.note({0, clock.tick(0), std::make_shared<const std::string>("step")}, clock, accesses);
  }
  EXPECT_EQ(map.pieces(), 1u);
}

}  // namespace
}  // namespace tandem::gpu
