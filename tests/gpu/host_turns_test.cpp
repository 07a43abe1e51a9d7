// Lanes that take turns on one thread: which of them is next, and what is ordered.
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>

#include "host_rig.h"

namespace tandem::gpu {
namespace {

using Lanes = std::vector<std::unique_ptr<HostLane>>;

Lanes turns(Device& device, std::vector<std::string> names) { return device.lanes(names, Purpose::adam); }

/// A moment that passes when it is told to.
class Gate {
 public:
  explicit Gate(Device& device) : lane_(device.lane("gate", Purpose::other)) {
    lane_->run({"hold", {}, {}, [this] { opened_.get_future().wait(); }});
    fence_ = lane_->record();
  }
  [[nodiscard]] const Fence& fence() const { return fence_; }
  void open() {
    opened_.set_value();
    fence_.wait();
  }

 private:
  std::promise<void> opened_;
  std::unique_ptr<HostLane> lane_;
  Fence fence_;
};

void finish(const Lanes& lanes) {
  for (const auto& lane : lanes) lane->record().wait();
}

TEST(ChaosTurns, TheFirstThatMayRunIsNext) {
  Rig rig;
  const Lanes lanes = turns(rig.device, {"a", "b", "c"});
  std::string order;
  std::promise<void> running, go;
  lanes[2]->run({"c", {}, {}, [&] {
                   running.set_value();
                   go.get_future().wait();
                   order += 'c';
                 }});
  running.get_future().wait();
  lanes[1]->run({"b", {}, {}, [&] { order += 'b'; }});
  lanes[0]->run({"a", {}, {}, [&] { order += 'a'; }});
  go.set_value();
  finish(lanes);
  EXPECT_EQ(order, "cab");
}

TEST(ChaosTurns, ALaneKeepsTheThreadUntilItMustWait) {
  Rig rig;
  Gate gate(rig.device);
  const Lanes lanes = turns(rig.device, {"a", "b"});
  std::string order;
  std::promise<void> running, go;
  lanes[1]->run({"1", {}, {}, [&] {
                   running.set_value();
                   go.get_future().wait();
                   order += '1';
                 }});
  running.get_future().wait();
  lanes[1]->run({"2", {}, {}, [&] { order += '2'; }});
  lanes[1]->wait(gate.fence());
  lanes[1]->run({"3", {}, {}, [&] { order += '3'; }});
  lanes[0]->run({"a", {}, {}, [&] { order += 'a'; }});
  go.set_value();
  lanes[0]->record().wait();
  EXPECT_EQ(order, "12a");
  gate.open();
  finish(lanes);
  EXPECT_EQ(order, "12a3");
}

/// Four pieces become possible one after the other, the last lane's first, as gradients land.
TEST(ChaosTurns, OfThosePossibleByNowTheFirstIsTaken) {
  Rig rig;
  std::vector<std::unique_ptr<Gate>> gates;
  for (int i = 0; i < 4; ++i) gates.push_back(std::make_unique<Gate>(rig.device));
  const Lanes lanes = turns(rig.device, {"0", "1", "2", "3"});
  std::string order;
  std::promise<void> running, go;
  for (size_t i = 0; i < 4; ++i) {
    lanes[i]->wait(gates[i]->fence());
    lanes[i]->run({"piece", {}, {}, [&, i] {
                     if (i == 3) {
                       running.set_value();
                       go.get_future().wait();
                     }
                     order += static_cast<char>('0' + i);
                   }});
  }
  gates[3]->open();
  running.get_future().wait();
  gates[2]->open();
  gates[1]->open();
  go.set_value();
  for (const size_t i : {1, 2, 3}) lanes[i]->record().wait();
  gates[0]->open();
  finish(lanes);
  EXPECT_EQ(order, "3120");
}

TEST(ChaosTurns, OneTaskAtATimeInEitherMode) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), {1}, {2}, {3}}) {
    Rig rig(mode);
    const Lanes lanes = turns(rig.device, {"a", "b", "c"});
    std::atomic<int> inside = 0;
    std::atomic<bool> met = false;
    int done = 0;  // of one thread's tasks: needs no order but their turns
    for (int i = 0; i < 40; ++i)
      for (const auto& lane : lanes)
        lane->run({"count", {}, {}, [&] {
                     if (++inside > 1) met = true;
                     ++done;
                     --inside;
                   }});
    finish(lanes);
    EXPECT_FALSE(met);
    EXPECT_EQ(done, 120);
  }
}

/// Not even while a task blocks on a promise: so one that only another turn could fulfil is never fulfilled.
TEST(ChaosTurns, ATaskThatWaitsForAnothersTurnIsADeadlock) {
  Rig rig(4);
  const Lanes lanes = turns(rig.device, {"a", "b"});
  const auto promise = rig.device.promise("from b");
  const std::string message = message_of<DeadlockError>([&] {
    lanes[0]->run({"take", {}, {}, [&] { (void)promise->recorded(); }});
    lanes[0]->record().wait();
    lanes[1]->run({"give", {}, {}, [&] { promise->fulfil({}); }});
    finish(lanes);
  });
  EXPECT_TRUE(contains(message, "task \"take\" on lane \"a\" (range \"\") waits for promise \"from b\""))
      << message;
}

TEST(ChaosTurns, TurnsOrderNothingButFencesDo) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), {3}})
    for (const bool fenced : {false, true}) {
      Rig rig(mode);
      Pinned<float> memory(rig.device, 4);
      const Lanes lanes = turns(rig.device, {"a", "b"});
      lanes[0]->run({"first", {}, {memory.tensor()}, [] {}});
      if (fenced) lanes[1]->wait(lanes[0]->record());
      const auto second = [&] { lanes[1]->run({"second", {memory.tensor()}, {}, [] {}}); };
      if (fenced) {
        EXPECT_NO_THROW(second());
      } else {
        EXPECT_TRUE(contains(message_of<OrderError>(second), "task \"first\" on lane \"a\""));
      }
      finish(lanes);
    }
}

/// The order of two tasks of each of four lanes.
std::string order_of(uint64_t seed) {
  Rig rig(seed);
  const Lanes lanes = turns(rig.device, {"a", "b", "c", "d"});
  std::string order;
  for (int i = 0; i < 2; ++i)
    for (const auto& lane : lanes) lane->run({"task", {}, {}, [&order, &lane] { order += lane->name(); }});
  finish(lanes);
  return order;
}

TEST(ChaosTurns, SeedsTakeThemInManyOrders) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    EXPECT_EQ(order_of(seed), order_of(seed)) << seed;
    orders.insert(order_of(seed));
  }
  EXPECT_GE(orders.size(), 10u);
}

TEST(ChaosTurns, AFailureOfOneIsEveryonesAndNothingHangs) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), {5}, {6}}) {
    Rig rig(mode);
    bool ran = false;
    Lanes lanes = turns(rig.device, {"a", "b", "c"});
    const auto ending = [&] {
      lanes[1]->run({"bad", {}, {}, [] { throw std::runtime_error("planted"); }});
      const Fence bad = lanes[1]->record();
      lanes[2]->wait(bad);
      lanes[2]->run({"after", {}, {}, [&] { ran = true; }});
      lanes[2]->record().wait();
    };
    EXPECT_EQ(message_of<std::runtime_error>(ending), "planted");
    EXPECT_EQ(message_of<std::runtime_error>([&] { lanes[0]->run({"next", {}, {}, [] {}}); }), "planted");
    lanes.clear();
    EXPECT_FALSE(ran);
  }
}

TEST(ChaosTurns, ClosingALaneDrainsItWhileOthersGoOn) {
  for (const std::optional<uint64_t> mode : {std::optional<uint64_t>(), {7}, {8}})
    for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
      Rig rig(mode);
      Lanes lanes = turns(rig.device, {"a", "b", "c"});
      std::array<int, 3> done{};
      for (int i = 0; i < 5; ++i)
        for (size_t l = 0; l < 3; ++l) lanes[l]->run({"count", {}, {}, [&done, l] { ++done[l]; }});
      for (const size_t l : order) {
        lanes[l].reset();
        EXPECT_EQ(done[l], 5);
      }
    }
}

/// While a lane waits for its turn, what holds it is the work of the others: whoever waits for the lane is
/// idle because of Adam.
TEST(NumbersTimes, AWaitForATurnIsTheWorkOfTheOthers) {
  Rig rig;
  const auto compute = rig.device.stream("compute", Purpose::compute, 0);
  const Lanes lanes = turns(rig.device, {"a", "b"});
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); };
  const Fence begin = compute->record();
  begin.wait();
  std::promise<void> running, go;
  lanes[0]->run({"adam", {}, {}, [&] {
                   running.set_value();
                   go.get_future().wait();
                   nap();
                 }});
  running.get_future().wait();
  lanes[1]->run({"adam", {}, {}, [] {}});
  compute->wait(lanes[1]->record());
  const Fence end = compute->record();
  go.set_value();
  end.wait();
  EXPECT_GE(compute->times(begin, end).adam_ms, 39);
}

}  // namespace
}  // namespace tandem::gpu
