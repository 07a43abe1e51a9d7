#pragma once
// A whole training engine on the host device from a few options: a tiny model, formula weights and tokens,
// so many steps, and everything that can be compared bit for bit.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpu_adam/make_workers.h"
#include "offload/trainer.h"
#include "tests/offload/test_memory.h"

namespace tandem::testing {

/// Bytes of device memory that an engine may use.
constexpr size_t kDeviceMemory = size_t{256} << 20;

/// The optimizer's place; mixed: blocks 0, 2, 4 .. on the host, the others on the device; half: as the ratio
/// 0.5 has it, from block 0 upward on the device.
enum class Where : uint8_t { host, device, mixed, half };

/// Hidden 64, two layers, four heads over two, vocabulary 256.
Arch tiny_arch(bool tied);
/// The same sizes as GPT-2 has it: learned positions, layer norms, biases, tied.
Arch gpt2_arch();

struct EngineOptions {
  Arch arch = tiny_arch(false);
  DType dtype = DType::f32;
  int64_t micro_batch = 1, length = 16, micro_batches = 1;
  Order order = Order::layer_major;
  Keep keep = Keep::input;
  Where where = Where::host;
  PolicyOptions policy;  ///< schedule, warm-up and loss scale
  float prediction = 0;
  double clip = 0;
  AdamHyper adam{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true};
  std::vector<std::string> no_decay, freeze;
  MasterFormat masters = MasterFormat::fp32;
  MomentFormat moments = MomentFormat::fp32;
  uint64_t seed = 5;  ///< of compact states' random bits
  std::function<double(int64_t updates_before)> lr = [](int64_t n) { return n < 3 ? 1e-3 * (n + 1) : 4e-3; };
  OnNonfinite on_nonfinite = OnNonfinite::skip;
  int64_t max_skipped_in_a_row = 20;
  int layer_buckets = 2;
  int64_t slice_elements = int64_t{1} << 25;  ///< of a gradient that is rounded and sent at once
  int window = 0;  ///< layers in the window of streamed weights; 0: weights are resident

  int64_t mask_every = 0;  ///< every so many targets one is not trained (0: all are)
  /// Steps in which one target alone is trained, so that its gradient, which is not shared with others by the
  /// mean, is the largest one: with a loss scale that just holds for whole batches it overflows.
  std::set<int64_t> lone_target_steps;
  std::set<int64_t> blank_steps;                                 ///< steps without any trained target
  std::function<void(const ParamSpec&, std::span<float>)> fill;  ///< initial weights; none: the goldens'

  PoolKind pool = PoolKind::plain;
  int threads = 2;
  std::optional<Topology> machine;  ///< that the threads are of; none: the one that this is
  bool check_order = true;          ///< vector clocks
  std::optional<uint64_t> chaos_seed;
  std::function<std::unique_ptr<Device>(Workers&)> open;  ///< another device; none: "host" as said above
};

/// A scale with which whole batches of the tiny model stay finite and a lone target overflows.
LossScaleConfig tight_loss_scale(DType dtype);

/// A delayed run whose learning rate is far too high for three updates from step 22 on, with a staleness
/// limit that the loss then passes, and one step without trained tokens.
EngineOptions rising_loss();

TrainSetup setup_of(const EngineOptions& options, const ParamTable& table);

/// Step k's tokens and targets, [micro_batches, B, T]: windows of golden::batch(k).
struct FormulaTokens {
  std::vector<int32_t> tokens, targets;
  FormulaTokens(const EngineOptions& options, int64_t step);
  [[nodiscard]] StepTokens view() const { return {tokens, targets}; }
};

/// A plane's bytes, block by block: of weights all elements, of other planes the trained ones.
using PlaneBits = std::vector<std::vector<std::byte>>;

/// What a run came to. `lagged` and `predicted` are there if a checkpoint would hold them.
struct Outcome {
  std::map<Plane, PlaneBits> planes;
  std::vector<Decision> decisions;  ///< of all its steps, in order
  std::vector<int> lags;
};

/// The first thing in which two outcomes differ, in words; empty if there is none. Planes that only one of
/// them has are a difference. what: only these planes, and no decisions; empty: everything.
std::string difference(const Outcome& a, const Outcome& b, const std::set<Plane>& what = {});

/// What a checkpoint keeps of a run, in memory.
struct Saved {
  TrainState state;
  std::map<Plane, PlaneBits> planes;
  std::vector<StateFormat> formats;  ///< of each block
};

class EngineRig {
 public:
  explicit EngineRig(const EngineOptions& options);
  /// Goes on where the run that was saved had stopped.
  EngineRig(const EngineOptions& options, const Saved& saved);
  ~EngineRig();

  /// Runs so many more steps without a pause between them, then quiesces.
  void run(int64_t steps);
  /// After run(): everything so far, since this rig began.
  [[nodiscard]] Outcome outcome();
  [[nodiscard]] Saved save();
  [[nodiscard]] PlaneBits plane(Plane plane);
  [[nodiscard]] Trainer& trainer() { return *trainer_; }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] HostMemory& host() { return host_; }
  [[nodiscard]] const TrainSetup& setup() const { return setup_; }
  [[nodiscard]] const ParamTable& table() const { return table_; }
  [[nodiscard]] const std::vector<StepReport>& reports() const { return reports_; }

 private:
  /// The parts around the trainer.
  EngineRig(const EngineOptions& options, std::nullptr_t no_trainer);
  void take_reports();
  [[nodiscard]] DType dtype_of(Plane plane, StateFormat format) const;
  const EngineOptions options_;
  ParamTable table_;
  TrainSetup setup_;
  std::unique_ptr<Workers> workers_;
  TestMemory host_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<StepReport> reports_;
};

/// A fresh engine's outcome after so many steps.
Outcome run_engine(const EngineOptions& options, int64_t steps);

}  // namespace tandem::testing
