#include "tests/offload/chaos_setups.h"

#include <bit>

#include "core/math/reduce_tree.h"

#include "gpu/host/host_ops.h"

namespace tandem::testing {

namespace {

/// Lag 1 from step 1 on; where a step overflows, lag 0 again for one step after it is known.
PolicyOptions delayed(LossScaleConfig scale = {.fixed = 1}) {
  return {.schedule = Schedule::delayed, .warmup_steps = 1, .loss_scale = scale};
}

EngineOptions engine(bool tied, DType dtype, Where where, int64_t micro_batches, PolicyOptions policy = {}) {
  EngineOptions options;
  options.arch = tiny_arch(tied);
  options.dtype = dtype;
  options.where = where;
  options.micro_batches = micro_batches;
  options.policy = policy;
  return options;
}

ChaosSetup synchronous_device() {
  EngineOptions options = engine(true, DType::bf16, Where::device, 2);
  options.clip = 1;
  options.mask_every = 5;
  return {"SynchronousDeviceTied", options, 4};
}

ChaosSetup synchronous_overflow() {
  EngineOptions options =
      engine(false, DType::f16, Where::mixed, 3, {.loss_scale = tight_loss_scale(DType::f16)});
  options.order = Order::micro_batch_major;
  options.keep = Keep::all;
  options.lone_target_steps = {1};
  return {"SynchronousMixedOverflow", options, 4};
}

ChaosSetup exact_gated() {
  EngineOptions options = engine(true, DType::bf16, Where::mixed, 2, {.schedule = Schedule::exact});
  options.clip = 1;
  options.blank_steps = {2};
  return {"ExactGatedMixedTied", options, 5};
}

ChaosSetup exact_overflow() {
  EngineOptions options = engine(false, DType::f16, Where::host, 1,
                                 {.schedule = Schedule::exact, .loss_scale = tight_loss_scale(DType::f16)});
  options.lone_target_steps = {1};
  return {"ExactGatedHostOverflow", options, 4};
}

ChaosSetup exact_early(const char* name, bool tied, DType dtype, Where where) {
  EngineOptions options = engine(tied, dtype, where, 2, {.schedule = Schedule::exact});
  options.on_nonfinite = OnNonfinite::stop;
  options.layer_buckets = 1;
  options.blank_steps = {2};
  return {name, options, 5};
}

ChaosSetup delayed_host() {
  EngineOptions options = engine(true, DType::bf16, Where::host, 2, delayed());
  options.prediction = 1;
  options.clip = 1;
  options.layer_buckets = 1;
  options.slice_elements = 2 * kReduceLeaf;
  return {"DelayedHostTiedPredict", options, 5};
}

ChaosSetup delayed_one_bucket() {
  EngineOptions options = engine(false, DType::f32, Where::host, 1, delayed());
  options.slice_elements = kReduceLeaf;
  options.layer_buckets = 1;
  return {"DelayedHostUntied", options, 5};
}

ChaosSetup delayed_device() {
  EngineOptions options = engine(false, DType::f32, Where::device, 2, delayed());
  options.keep = Keep::all;
  return {"DelayedDeviceUntied", options, 5};
}

/// Three layers, so that what is sent away in forward, what lies in between and what stays all differ.
ChaosSetup offloaded_inputs(const char* name, int64_t micro_batches, Order order, PolicyOptions policy) {
  EngineOptions options = engine(false, DType::bf16, Where::host, micro_batches, policy);
  options.arch.layers = 3;
  options.order = order;
  options.keep = Keep::input_offloaded;
  return {name, options, 5};
}

ChaosSetup delayed_overflow_mixed() {
  EngineOptions options = engine(false, DType::f16, Where::mixed, 3, delayed(tight_loss_scale(DType::f16)));
  options.order = Order::micro_batch_major;
  options.prediction = 2;
  options.lone_target_steps = {2};
  return {"DelayedMixedOverflow", options, 8};
}

ChaosSetup delayed_overflow_host() {
  // Over two micro-batches the mean tames the tied embedding's gradient, the largest one.
  EngineOptions options = engine(true, DType::bf16, Where::host, 2, delayed(tight_loss_scale(DType::bf16)));
  options.prediction = 1;
  options.lone_target_steps = {2};
  return {"DelayedHostTiedOverflow", options, 8};
}

/// The upper halves of masters stay in the slots that uploads read and gradients land in.
ChaosSetup delayed_upper(const char* name, Where where, LossScaleConfig scale, std::set<int64_t> overflows) {
  EngineOptions options = engine(true, DType::bf16, where, 2, delayed(scale));
  options.masters = where == Where::host ? MasterFormat::split : MasterFormat::ulp8;
  options.lone_target_steps = std::move(overflows);
  options.layer_buckets = 1;
  return {name, options, 8};
}

/// A window of streamed weights that is smaller than the model.
ChaosSetup streamed(const char* name, EngineOptions options, int window, int64_t steps) {
  options.arch.layers = 3;
  options.window = window;
  return {name, options, steps};
}

ChaosSetup streamed_exact() {
  EngineOptions options = engine(false, DType::bf16, Where::host, 2, {.schedule = Schedule::exact});
  options.clip = 1;
  return streamed("StreamedExactUntied", options, 2, 4);
}

ChaosSetup streamed_exact_early() {
  EngineOptions options = exact_early("", true, DType::bf16, Where::host).options;
  return streamed("StreamedExactEarlyTied", options, 2, 4);
}

/// The uploads of some blocks beside the fetches of others.
ChaosSetup streamed_mixed() {
  EngineOptions options = engine(false, DType::f32, Where::mixed, 2, {.schedule = Schedule::exact});
  options.order = Order::micro_batch_major;
  options.freeze = {"*layers.1.mlp*"};
  return streamed("StreamedExactMixed", options, 2, 4);
}

ChaosSetup streamed_delayed() {
  EngineOptions options = delayed_overflow_host().options;
  return streamed("StreamedDelayedTiedOverflow", options, 2, 7);
}

}  // namespace

const std::vector<ChaosSetup>& chaos_setups() {
  static const std::vector<ChaosSetup> setups{
      {"SynchronousHostUntied", engine(false, DType::f32, Where::host, 1), 4},
      synchronous_device(),
      synchronous_overflow(),
      exact_gated(),
      exact_overflow(),
      exact_early("ExactEarlyHost", false, DType::bf16, Where::host),
      exact_early("ExactEarlyMixedTied", true, DType::bf16, Where::mixed),
      exact_early("ExactEarlyDevice", false, DType::f32, Where::device),
      delayed_host(),
      delayed_one_bucket(),
      delayed_device(),
      offloaded_inputs("SynchronousOffloadedInputs", 1, Order::layer_major, {}),
      offloaded_inputs("ExactOffloadedInputs", 2, Order::layer_major, {.schedule = Schedule::exact}),
      offloaded_inputs("DelayedOffloadedInputs", 3, Order::layer_major, delayed()),
      offloaded_inputs("DelayedOffloadedInputsByTurns", 2, Order::micro_batch_major, delayed()),
      delayed_overflow_mixed(),
      delayed_overflow_host(),
      delayed_upper("DelayedHostUpperInSlots", Where::host, {.fixed = 1}, {}),
      delayed_upper("DelayedMixedUpperInSlotsOverflow", Where::mixed, tight_loss_scale(DType::bf16), {2}),
      streamed_exact(),
      streamed_exact_early(),
      streamed_mixed(),
      streamed_delayed()};
  return setups;
}

ChaosRun run_chaos(const ChaosSetup& setup, EngineRig& rig) {
  constexpr int64_t kBefore = 3;
  for (int64_t step = 0; step < kBefore; ++step)
    rig.trainer().step(FormulaTokens(setup.options, step).view());
  EngineOptions one = setup.options;
  one.micro_batches = 1;
  const FormulaTokens held_out(one, 100);
  (void)rig.trainer().begin_evaluation();
  ChaosRun run;
  run.evaluation = rig.trainer().evaluate(held_out.view());
  rig.run(setup.steps - kBefore);
  run.outcome = rig.outcome();
  return run;
}

ChaosRun run_chaos(const ChaosSetup& setup, std::optional<uint64_t> seed) {
  EngineOptions options = setup.options;
  options.chaos_seed = seed;
  EngineRig rig(options);
  return run_chaos(setup, rig);
}

std::string difference(const ChaosRun& a, const ChaosRun& b) {
  if (std::bit_cast<uint64_t>(a.evaluation) != std::bit_cast<uint64_t>(b.evaluation))
    return "evaluations of " + std::to_string(a.evaluation) + " and " + std::to_string(b.evaluation);
  return difference(a.outcome, b.outcome);
}

std::function<std::unique_ptr<Device>(Workers&)> chaos_device(uint64_t seed,
                                                              std::function<void(gpu::HostDevice&)> prepare) {
  return [=](Workers& workers) {
    auto device =
        std::make_unique<gpu::HostDevice>(workers, gpu::HostDeviceOptions{kDeviceMemory, seed, true},
                                          [](gpu::KernelQueue& queue) { return gpu::make_host_ops(queue); });
    prepare(*device);
    return device;
  };
}

}  // namespace tandem::testing
