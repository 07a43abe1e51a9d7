// When and in what order blocks are updated: what the schedules promise to overlap, by events, not by time.
#include <gtest/gtest.h>

#include <future>
#include <set>

#include "tests/offload/engine_rig.h"
#include "tests/offload/failure_device.h"

namespace tandem::testing {
namespace {

using Tasks = std::vector<std::string>;

/// Four blocks: embedding, two layers, head.
EngineOptions options_of(Schedule schedule, OnNonfinite on_nonfinite) {
  EngineOptions options;
  options.policy = {.schedule = schedule, .warmup_steps = 0};
  options.on_nonfinite = on_nonfinite;
  return options;
}

/// The tasks of one step, in the order in which they ran.
Tasks tasks_of(EngineOptions options, uint64_t seed) {
  Tasks tasks;
  options.open = [&](Workers& workers) {
    auto device = std::make_unique<FailureDevice>(workers, seed, FaultPlan{});
    device->watch_task = [&](const std::string& task) { tasks.push_back(task); };
    return device;
  };
  EngineRig rig(options);
  rig.run(1);
  return tasks;
}

size_t place_of(const Tasks& tasks, const std::string& task) {
  return static_cast<size_t>(std::ranges::find(tasks, task) - tasks.begin());
}

TEST(ChaosUpdates, AreInTheSchedulesOrderBehindTheDecision) {
  const Tasks forward{"decide",          "adam embedding",  "publish embedding",
                      "adam layer 0",    "publish layer 0", "adam layer 1",
                      "publish layer 1", "adam head",       "publish head"};
  const Tasks backward{"decide",          "adam head",       "publish head",
                       "adam layer 1",    "publish layer 1", "adam layer 0",
                       "publish layer 0", "adam embedding",  "publish embedding"};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(tasks_of(options_of(Schedule::exact, OnNonfinite::skip), seed), forward);
    EXPECT_EQ(tasks_of(options_of(Schedule::delayed, OnNonfinite::stop), seed), backward);
    EXPECT_EQ(tasks_of(options_of(Schedule::synchronous, OnNonfinite::stop), seed), backward);
  }
}

TEST(ChaosUpdates, OfExactNeedNoDecisionWhereItCannotChangeThem) {
  std::set<Tasks> orders;
  bool before = false, after = false;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Tasks tasks = tasks_of(options_of(Schedule::exact, OnNonfinite::stop), seed);
    EXPECT_EQ(tasks.size(), 9u);
    orders.insert(tasks);
    before |= place_of(tasks, "adam head") < place_of(tasks, "decide");
    after |= place_of(tasks, "adam embedding") > place_of(tasks, "decide");
  }
  EXPECT_TRUE(before && after);
  EXPECT_GE(orders.size(), 6u);
}

/// The head's update is held until all gradients have landed: then the decision is made, and of the others
/// the newest landed is first, which is what the next forward needs first.
TEST(ChaosUpdates, OfExactTakeTheNewestLandedFirst) {
  Tasks tasks;
  std::promise<void> begun, landed;
  FailureDevice* device = nullptr;
  EngineOptions options = options_of(Schedule::exact, OnNonfinite::stop);
  bool waited = false;
  options.open = [&](Workers& workers) {
    auto opened = std::make_unique<FailureDevice>(workers, std::nullopt, FaultPlan{});
    device = opened.get();
    opened->watch = [&](const gpu::Kernel& kernel) {  // the first one of layer 1's backward
      if (waited || kernel.name != "attention_backward") return;
      waited = true;
      begun.get_future().wait();
    };
    opened->watch_task = [&](const std::string& task) {
      tasks.push_back(task);
      if (tasks.size() > 1) return;
      begun.set_value();
      landed.get_future().wait();
    };
    return opened;
  };
  EngineRig rig(options);
  rig.trainer().step(FormulaTokens(options, 0).view());
  device->record("d2h_grad").wait();
  landed.set_value();
  rig.run(0);
  const Tasks expected{"adam head",       "publish head",      "decide",
                       "adam embedding",  "publish embedding", "adam layer 0",
                       "publish layer 0", "adam layer 1",      "publish layer 1"};
  EXPECT_EQ(tasks, expected);
}

/// A forward goes on as far as its weights have arrived: the update of layer 1 is held until the next step's
/// first kernel has been enqueued. A step that waited for all would hang.
TEST(ChaosUpdates, OfExactAreWaitedForBlockByBlock) {
  std::promise<void> started;
  bool second = false;
  int updates = 0;
  EngineOptions options = options_of(Schedule::exact, OnNonfinite::skip);
  options.open = [&](Workers& workers) {
    auto opened = std::make_unique<FailureDevice>(workers, std::nullopt, FaultPlan{});
    opened->watch = [&](const gpu::Kernel& kernel) {
      if (second && kernel.name == "embedding_forward") started.set_value();
    };
    opened->watch_task = [&](const std::string& task) {
      if (task == "adam layer 1" && ++updates == 1) started.get_future().wait();
    };
    return opened;
  };
  EngineRig rig(options);
  rig.trainer().step(FormulaTokens(options, 0).view());
  second = true;
  rig.trainer().step(FormulaTokens(options, 1).view());
  second = false;
  rig.run(0);
  EXPECT_EQ(rig.reports().size(), 2u);
}

}  // namespace
}  // namespace tandem::testing
