// A failure at any stage of training, on any thread: the first one is what the user gets, from the call that
// meets it and from every later one; nothing hangs, nothing that is poisoned says that it is quiet.
#include <gtest/gtest.h>

#include <csignal>
#include <future>

#include "tests/core/expect_error.h"
#include "tests/offload/chaos_setups.h"
#include "tests/offload/failure_device.h"

namespace tandem::testing {
namespace {

struct Stage {
  const char* name;
  Where where;  ///< the optimizer's place
  FaultPlan plan;
  Keep keep = Keep::input;
  int window = 0;  ///< of streamed weights; 0: resident
};

/// With a delay, each in a step whose predecessor's update is still under way (lag 1 from step 1 on). A
/// layer's forward and backward have several kernels of the name, so `after` picks a step only roughly. One
/// input of two travels.
const std::vector<Stage>& stages() {
  using enum Fault;
  static const std::vector<Stage> stages{
      {"FetchOfTokens", Where::host, {in_operation, "h2d_batch/tokens/copy", 2, {}}},
      {"ForwardKernel", Where::host, {in_operation, "compute/forward layer 1/rms_norm_forward", 5, {}}},
      {"FirstKernel", Where::host, {in_operation, "compute/forward embedding/", 0, {}}},
      {"HeadKernel", Where::host, {in_operation, "compute/head/softmax_cross_entropy", 2, {}}},
      {"BackwardKernel", Where::host, {in_operation, "compute/backward layer 0/attention_backward", 2, {}}},
      {"Rounding", Where::host, {in_operation, "round_grad/gradient of layer 1/cast", 2, {}}},
      {"GradientToTheHost", Where::host, {in_operation, "d2h_grad/gradient of ", 7, {}}},
      {"NumbersToTheHost", Where::host, {in_operation, "d2h_grad/norms and losses/copy", 1, {}}},
      {"Decision", Where::host, {in_operation, "/decide", 2, {}}},
      {"AdamOfTheHead", Where::host, {in_operation, "/adam head", 2, {}}},
      {"AdamOfLayer1", Where::host, {in_operation, "/adam layer 1", 2, {}}},
      {"AdamOfLayer0", Where::host, {in_operation, "/adam layer 0", 2, {}}},
      {"AdamOfTheEmbedding", Where::host, {in_operation, "/adam embedding", 2, {}}},
      {"PublishTheHead", Where::host, {in_operation, "/publish head", 2, {}}},
      {"PublishTheEmbedding", Where::host, {in_operation, "/publish embedding", 2, {}}},
      {"LaunchDeviceAdam", Where::device, {in_operation, "/launch adam layer 1", 2, {}}},
      {"DeviceAdam", Where::device, {in_operation, "device_adam//", 8, {}}},
      {"EnqueueDeviceAdam", Where::device, {at_enqueue, "device_adam//", 8, {}}},
      {"UploadOfWeights", Where::host, {in_operation, "h2d_upload/version ", 5, {}}},
      {"UploadOnTheDevice", Where::device, {in_operation, "h2d_upload/version ", 5, {}}},
      {"FetchOfWeights", Where::host, {in_operation, "h2d_fetch/version ", 7, {}}, Keep::input, 2},
      {"EnqueueFetchOfWeights", Where::host, {at_enqueue, "h2d_fetch/version ", 8, {}}, Keep::input, 2},
      {"PublishStreamedWeights", Where::host, {in_operation, "/publish layer 1", 2, {}}, Keep::input, 2},
      {"EnqueueUpload", Where::host, {at_enqueue, "h2d_upload/version ", 5, {}}},
      {"EnqueueForward", Where::host, {at_enqueue, "compute/forward layer 0/linear_forward", 8, {}}},
      {"EnqueueBackward", Where::host, {at_enqueue, "compute/backward layer 1/linear_backward_input", 8, {}}},
      {"EnqueueOptimizer", Where::host, {at_enqueue, "/adam layer 0", 2, {}}},
      {"Evaluation", Where::host, {in_operation, "compute/evaluate layer 1/", 3, {}}},
      {"EvaluationsLoss", Where::device, {in_operation, "compute/evaluate head/softmax", 0, {}}},
      {"InputToTheHost",
       Where::host,
       {in_operation, "d2h_act/input of layer ", 2, {}},
       Keep::input_offloaded},
      {"InputFromTheHost",
       Where::device,
       {in_operation, "h2d_act/input of layer ", 2, {}},
       Keep::input_offloaded},
      {"EnqueueInputToTheHost",
       Where::host,
       {at_enqueue, "d2h_act/input of layer ", 2, {}},
       Keep::input_offloaded},
      {"EnqueueInputFromTheHost",
       Where::host,
       {at_enqueue, "h2d_act/input of layer ", 2, {}},
       Keep::input_offloaded},
      {"LoadingWeights", Where::host, {in_operation, "h2d_upload/planes/copy", 1, {}}},
      {"ReadingACheckpoint", Where::device, {in_operation, "", 0, {}}},  // planted when it is read
  };
  return stages;
}

/// What runs beside what when it happens.
struct Overlap {
  const char* name;
  Schedule schedule;
  OnNonfinite on_nonfinite;  ///< which decides whether `exact` updates early
};
constexpr Overlap kOverlaps[] = {{"", Schedule::delayed, OnNonfinite::skip},
                                 {"ExactGated", Schedule::exact, OnNonfinite::skip},
                                 {"ExactEarly", Schedule::exact, OnNonfinite::stop}};

struct Case {
  Stage stage;
  Overlap overlap;
  std::optional<uint64_t> seed;
};

std::string name_of(const Case& param) {
  return fmt::format("{}{}{}", param.stage.name, param.overlap.name,
                     param.seed ? "Seed" + std::to_string(*param.seed) : std::string("Threads"));
}

void PrintTo(const Case& param, std::ostream* out) { *out << name_of(param); }

EngineOptions options_for(const Stage& stage, const Overlap& overlap) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.where = stage.where;
  options.window = stage.window;
  if (stage.window > 0) options.arch.layers = 4;
  options.keep = stage.keep;
  options.policy = {.schedule = overlap.schedule, .warmup_steps = 1};
  options.on_nonfinite = overlap.on_nonfinite;
  options.prediction = 1;
  return options;
}

void expect_planted(const std::function<void()>& call, const char* name) {
  try {
    call();
    ADD_FAILURE() << name << " did not throw";
  } catch (const Planted&) {
  } catch (const std::exception& error) {
    ADD_FAILURE() << name << " threw another failure: " << error.what();
  }
}

/// What training does in its life.
void train(EngineRig& rig, const EngineOptions& options, FailureDevice& device) {
  for (int64_t step = 0; step < 3; ++step) rig.trainer().step(FormulaTokens(options, step).view());
  (void)rig.trainer().begin_evaluation();
  (void)rig.trainer().evaluate(FormulaTokens(options, 100).view());
  rig.run(3);
  device.plant({Fault::in_operation, "h2d_upload/planes/copy", 1, {}});
  (void)rig.outcome();
}

void expect_poisoned(EngineRig& rig, const EngineOptions& options) {
  Trainer& trainer = rig.trainer();
  const FormulaTokens tokens(options, 7);
  std::vector<float> out(static_cast<size_t>(rig.table().block(1).numel));
  const Tensor plane(out.data(), DType::f32, {rig.table().block(1).numel});
  expect_planted([&] { trainer.step(tokens.view()); }, "step");
  expect_planted([&] { (void)trainer.take_report(); }, "take_report");
  expect_planted([&] { trainer.quiesce(); }, "quiesce");
  expect_planted([&] { (void)trainer.begin_evaluation(); }, "begin_evaluation");
  expect_planted([&] { (void)trainer.evaluate(tokens.view()); }, "evaluate");
  expect_planted([&] { trainer.finalize(); }, "finalize");
  expect_planted([&] { (void)trainer.state(); }, "state");
  expect_planted([&] { (void)trainer.has_plane(Plane::lagged); }, "has_plane");
  expect_planted([&] { trainer.begin_reading(); }, "begin_reading");
  expect_planted([&] { trainer.read_plane(Plane::master, 1, plane); }, "read_plane");
}

void fail_at(const Case& param) {
  EngineOptions options = options_for(param.stage, param.overlap);
  FailureDevice* device = nullptr;
  options.open = [&](Workers& workers) {
    auto opened = std::make_unique<FailureDevice>(workers, param.seed, param.stage.plan);
    device = opened.get();
    return opened;
  };
  std::unique_ptr<EngineRig> rig;
  const auto live = [&] {
    rig = std::make_unique<EngineRig>(options);
    train(*rig, options, *device);
  };
  expect_planted(live, "training");
  if (rig) {
    EXPECT_TRUE(device->struck());
    expect_poisoned(*rig, options);
  }
}

/// Ends the program if something hangs, so that the test's failure says where.
void within_a_minute(const std::function<void()>& body) {
  auto done = std::async(std::launch::async, body);
  if (done.wait_for(std::chrono::minutes(1)) == std::future_status::ready) return done.get();
  std::fprintf(stderr, "%s hangs\n", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::abort();
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const Stage& stage : stages())
    for (const Overlap& overlap : kOverlaps)
      for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), {4}, {6}})
        cases.push_back({stage, overlap, seed});
  return cases;
}

class ChaosTrainerFailure : public ::testing::TestWithParam<Case> {};

TEST_P(ChaosTrainerFailure, IsWhatEveryCallThrowsFromThenOn) {
  within_a_minute([] { fail_at(GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Stages, ChaosTrainerFailure, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

/// A lane that loses a publication: nobody will ever upload that version.
TEST(ChaosDeadlock, SaysWhoWaitsForWhat) {
  for (const int buckets : {1, 2}) {
    EngineOptions options;
    options.arch = tiny_arch(true);
    options.layer_buckets = buckets;
    options.open = [](Workers& workers) {
      return std::make_unique<FailureDevice>(workers, 3, FaultPlan{Fault::lost, "/publish layer 0", 1, {}});
    };
    EngineRig rig(options);
    try {
      rig.run(4);
      ADD_FAILURE() << "a lost publication went unnoticed";
    } catch (const gpu::DeadlockError& error) {
      const std::string text = error.what();
      for (const char* part :
           {"a host thread waits for promise \"upload of version 2 of block 1\", and nothing can run",
            "\n  lane \"optimizer\" is empty", "\n  stream \"compute\" "})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

/// down_proj is the only parameter of a layer with this shape.
bool is_down_proj(const gpu::Kernel& kernel) {
  const Tensor& out = kernel.writes.at(0);
  const Arch arch = tiny_arch(false);
  return kernel.name == "linear_backward_weight" && out.rank() == 2 && out.dim(0) == arch.hidden &&
         out.dim(1) == arch.intermediate;
}

/// The error of a run whose gradient of layer 1's down_proj gets an infinity in step 1.
Error nonfinite_run(EngineOptions options, std::optional<uint64_t> seed) {
  options.open = [seed](Workers& workers) {
    return std::make_unique<FailureDevice>(
        workers, seed, FaultPlan{Fault::infinity, "compute/backward layer 1/", 1, is_down_proj});
  };
  EngineRig rig(options);
  try {
    rig.run(5);
  } catch (const Error& error) {
    EXPECT_THROW(rig.trainer().quiesce(), Error);
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Status::ok, "");
}

TEST(ChaosNonfinite, StopsWithTheNameOfTheFirstBadTensor) {
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), {2}})
    for (const Where where : {Where::host, Where::device})
      for (const bool stop : {true, false}) {
        EngineOptions options;
        options.dtype = DType::bf16;
        options.where = where;
        options.on_nonfinite = stop ? OnNonfinite::stop : OnNonfinite::skip;
        options.max_skipped_in_a_row = 1;
        const Error error = nonfinite_run(options, seed);
        EXPECT_EQ(error.status(), Status::failed);
        EXPECT_EQ(error.message(),
                  stop ? "the gradient of step 2 is not finite"
                       : "1 steps in a row had a gradient that is not finite, the last one step 2");
        // A device's gradient is not looked through.
        EXPECT_EQ(error.where(), where == Where::host ? "model.layers.1.mlp.down_proj.weight" : "layer 1");
        EXPECT_NE(error.hint(), "");
      }
}

/// Updates that did not wait for the decision: masters may be spoilt by then, so no plane is given out.
TEST(ChaosNonfinite, EndsARunOfEarlyUpdatesBeforeAnythingIsSaved) {
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), {2}, {3}})
    for (const Where where : {Where::host, Where::device}) {
      EngineOptions options;
      options.dtype = DType::bf16;
      options.where = where;
      options.policy.schedule = Schedule::exact;
      options.on_nonfinite = OnNonfinite::stop;
      options.open = [seed](Workers& workers) {
        return std::make_unique<FailureDevice>(
            workers, seed, FaultPlan{Fault::infinity, "compute/backward layer 1/", 1, is_down_proj});
      };
      EngineRig rig(options);
      ASSERT_TRUE(rig.setup().updates_early());
      rig.run(1);
      const auto spoilt = [&] {  // the step's own call may return before its decision
        rig.trainer().step(FormulaTokens(options, 1).view());
        rig.trainer().quiesce();
      };
      expect_error(Status::failed, {"the gradient of step 2 is not finite", "layer 1"}, spoilt);
      for (const auto& call : std::initializer_list<std::function<void()>>{
               [&] { rig.trainer().quiesce(); }, [&] { (void)rig.trainer().state(); },
               [&] { rig.trainer().begin_reading(); }, [&] { (void)rig.plane(Plane::master); }})
        expect_error(Status::failed, {"the gradient of step 2 is not finite"}, call);
    }
}

TEST(MemoryDeathTest, ATrainersTensorsCannotBeTouchedFromTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Tensor seen;
  EngineOptions options;
  options.open = [&seen](Workers& workers) {
    auto device = std::make_unique<FailureDevice>(workers, 1, FaultPlan{});
    device->watch = [&seen](const gpu::Kernel& kernel) { seen = kernel.reads.at(0); };
    return device;
  };
  EngineRig rig(options);
  rig.run(1);
  ASSERT_FALSE(seen.empty());
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, SIG_DFL);  // sanitizers have handlers of their own
        (void)*static_cast<volatile char*>(seen.raw());
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace tandem::testing
