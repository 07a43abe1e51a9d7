#include <set>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

/// Four lanes of six tasks; lane l's task 3 waits for lane l-1's task 2; task 5 enqueues one more on the next
/// lane.
std::vector<int> order_of(uint64_t seed) {
  Rig rig(seed);
  std::vector<int> order;
  std::vector<std::unique_ptr<HostLane>> lanes;
  for (int l = 0; l < 4; ++l) lanes.push_back(rig.device.lane("lane" + std::to_string(l), Purpose::adam));
  Fence before;  // lane l-1's
  for (int l = 0; l < 4; ++l) {
    Fence own;
    for (int t = 0; t < 6; ++t) {
      if (t == 3) lanes[l]->wait(before);
      lanes[l]->run(
          {"task", {}, {}, [&order, &lanes, l, t] {
             order.push_back(10 * l + t);
             if (t == 5)
               lanes[(l + 1) % 4]->run({"extra", {}, {}, [&order, l] { order.push_back(100 + l); }});
           }});
      if (t == 2) own = lanes[l]->record();
    }
    before = own;
  }
  for (const auto& lane : lanes) lane->record().wait();
  for (auto& lane : lanes) lane.reset();
  return order;
}

size_t place_of(const std::vector<int>& order, int entry) {
  return static_cast<size_t>(std::find(order.begin(), order.end(), entry) - order.begin());
}

TEST(Chaos, ASeedReplaysAndSeedsDiffer) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const std::vector<int> order = order_of(seed);
    EXPECT_EQ(order, order_of(seed)) << seed;
    orders.insert(order);
  }
  EXPECT_GE(orders.size(), 20u);
}

TEST(Chaos, EveryOrderKeepsQueuesAndFences) {
  bool overtaken = false;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const std::vector<int> order = order_of(seed);
    ASSERT_EQ(order.size(), 28u);
    for (int l = 0; l < 4; ++l) {
      for (int t = 1; t < 6; ++t) EXPECT_LT(place_of(order, 10 * l + t - 1), place_of(order, 10 * l + t));
      if (l > 0) {
        EXPECT_LT(place_of(order, 10 * (l - 1) + 2), place_of(order, 10 * l + 3));
      }
      // A task that enqueues is not interrupted by what it enqueued.
      EXPECT_LT(place_of(order, 10 * l + 5), place_of(order, 100 + l));
    }
    overtaken = overtaken || place_of(order, 30) < place_of(order, 0);
  }
  EXPECT_TRUE(overtaken) << "the last lane never ran before the first";
}

TEST(Chaos, TasksDoNotRunInsideATaskThatEnqueues) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Rig rig(seed);
    const auto first = rig.device.lane("first", Purpose::adam);
    const auto second = rig.device.lane("second", Purpose::adam);
    bool inside = false;
    bool nested = false;
    first->run({"outer", {}, {}, [&] {
                  inside = true;
                  for (int i = 0; i < 8; ++i)
                    second->run({"inner", {}, {}, [&] { nested = nested || inside; }});
                  inside = false;
                }});
    first->record().wait();
    second->record().wait();
    EXPECT_FALSE(nested) << seed;
  }
}

TEST(Chaos, APromiseNobodyFulfilsIsADeadlockThatListsTheHeads) {
  Rig rig(5);
  const auto lane = rig.device.lane("adam", Purpose::adam);
  const auto stream = rig.device.stream("h2d", Purpose::h2d, 0);
  const auto lease = rig.device.promise("lease of layer 3");
  const std::string message = message_of<DeadlockError>([&] { (void)lease->recorded(); });
  for (const char* part : {"a host thread waits for promise \"lease of layer 3\"", "lane \"adam\" is empty",
                           "stream \"h2d\" is empty"})
    EXPECT_TRUE(contains(message, part)) << message;
  EXPECT_THROW(stream->record().wait(), DeadlockError) << "the device is poisoned by it";
}

TEST(Chaos, ATaskThatWaitsForItsOwnLaneIsADeadlock) {
  Rig rig(6);
  const auto lane = rig.device.lane("adam", Purpose::adam);
  const auto stream = rig.device.stream("h2d", Purpose::h2d, 0);
  const auto promise = rig.device.promise("second half");
  std::string message;
  try {
    lane->range("layer 1");
    lane->run({"first half", {}, {}, [&] { (void)promise->recorded(); }});
    stream->wait(lane->record());
    lane->run({"second half", {}, {}, [&] { promise->fulfil({}); }});
    stream->record().wait();
  } catch (const DeadlockError& error) {
    message = error.what();
  }
  EXPECT_TRUE(contains(message, "task \"first half\" on lane \"adam\" (range \"layer 1\") waits for promise"))
      << message;
}

TEST(Chaos, ATaskMayBlockOnAPromiseOfAnotherLane) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Rig rig(seed);
    const auto first = rig.device.lane("first", Purpose::adam);
    const auto second = rig.device.lane("second", Purpose::adam);
    const auto promise = rig.device.promise("from second");
    bool got = false;
    second->run({"give", {}, {}, [&] { promise->fulfil({}); }});
    first->run({"take", {}, {}, [&] {
                  (void)promise->recorded();
                  got = true;
                }});
    first->record().wait();
    EXPECT_TRUE(got);
  }
}

TEST(Chaos, ClosingAStreamDrainsIt) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Rig rig(seed);
    int done = 0;
    auto first = rig.device.lane("first", Purpose::adam);
    auto second = rig.device.lane("second", Purpose::adam);
    for (int i = 0; i < 5; ++i) first->run({"count", {}, {}, [&] { ++done; }});
    second->wait(first->record());
    second->run({"last", {}, {}, [&] { done *= 10; }});
    second.reset();
    EXPECT_EQ(done, 50);
  }
}

}  // namespace
}  // namespace tandem::gpu
