#include "offload/evaluation.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "cpu_adam/host_reduce.h"
#include "offload/fit.h"
#include "offload/param_store.h"
#include "offload/progress.h"
#include "offload/weight_memory.h"
#include "offload/weight_window.h"

namespace tandem {

namespace {

/// Pinned host memory beside its owner.
struct Pinned {
  Buffer buffer;
  Pin pin;
  Pinned(Device& device, HostMemory& host, size_t bytes, const char* scope)
      : buffer(host.allocate(bytes, scope)),
        pin(device.pin({static_cast<std::byte*>(buffer.raw()), bytes})) {}
};

/// A training step that ends before its backward: forward is the same, and so is where weights are.
TrainSetup forward_setup(const Arch& arch, const ParamTable& table, const EvalOptions& options,
                         int64_t length) {
  TrainSetup setup;
  setup.arch = arch;
  setup.dtype = options.dtype;
  setup.micro_batch = options.batch;
  setup.length = length;
  setup.placement.assign(static_cast<size_t>(table.block_count()), Placement::host);
  setup.window = options.streamed ? options.window : 0;
  return setup;
}

/// The rounded weights, on the device, or on the host behind a window.
class EvalWeights {
 public:
  EvalWeights(const TrainSetup& setup, const ParamTable& table, const MemoryPlan& plan,
              const Machine& machine, Device& device)
      : setup_(setup),
        table_(table),
        machine_(machine),
        device_(device),
        memory_(setup, table, device, *machine.host) {
    if (setup.window == 0) return;
    plane_.emplace(device, *machine.host, plan.host.at("weights"), "weights");
    fetch_ = device.stream("h2d_fetch", Purpose::h2d);
  }

  /// Reads and rounds them, one block at a time; returns what to lease them from. The stream uploads those
  /// that stay on the device.
  std::unique_ptr<ParamSource> load(WeightSource& source, Stream& stream) {
    const auto largest = static_cast<size_t>(table_.largest_block());
    const Buffer wide = machine_.host->allocate(largest * sizeof(float), "staging");
    std::optional<Pinned> staging;
    if (!plane_) staging.emplace(device_, *machine_.host, largest * size_of(setup_.dtype), "staging");
    std::vector<Tensor> on_host;
    size_t offset = 0;
    for (BlockId id = 0; id < table_.block_count(); ++id) {
      const int64_t numel = table_.block(id).numel;
      const Tensor values = wide.tensor(DType::f32, {numel});
      const Tensor rounded = plane_ ? plane_->buffer.tensor(setup_.dtype, {numel}, offset)
                                    : staging->buffer.tensor(setup_.dtype, {numel});
      read(source, id, values);
      round_weights(*machine_.workers, machine_.isa, rounded, values);
      on_host.push_back(rounded);
      offset += rounded.bytes();
      if (plane_) continue;
      stream.copy(memory_.resident()[static_cast<size_t>(id)], rounded);
      stream.record().wait();
    }
    if (!plane_) return std::make_unique<FixedWeights>(memory_.resident(), Fence{});
    return std::make_unique<WeightWindow>(setup_, table_, std::make_unique<FixedFeed>(std::move(on_host)),
                                          *fetch_, memory_.window());
  }

 private:
  void read(WeightSource& source, BlockId id, Tensor values) const {
    const std::span<float> all(values.data<float>(), static_cast<size_t>(values.numel()));
    std::ranges::fill(all, 0.0f);
    for (const ParamSpec& spec : table_.of_block(id))
      source.read(spec, 0, all.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel)));
  }

  const TrainSetup& setup_;
  const ParamTable& table_;
  const Machine& machine_;
  Device& device_;
  WeightMemory memory_;
  std::optional<Pinned> plane_;  ///< all weights, where they stream
  std::unique_ptr<Stream> fetch_;
};

/// What stays the same while knobs are tried.
struct EvalSetting {
  const Arch& arch;
  const ParamTable& table;
  const Machine& machine;
};

/// Why it doesn't fit; empty when it does.
std::string shortfall(const EvalSetting& s, const EvalOptions& options, int64_t length) {
  const MemoryPlan plan = plan_evaluation(s.arch, s.table, options, length);
  if (plan.device_bytes() > s.machine.device_limit)
    return fmt::format("the device needs {}{} where {} may be used", byte_text(plan.device_bytes()),
                       options.streamed ? " with weights that stream" : "",
                       byte_text(s.machine.device_limit));
  return host_shortfall(s.machine, plan.host_bytes() + plan.staging, plan.device_bytes());
}

/// With weights that stream where the device has no room for them.
EvalOptions settled(const EvalSetting& s, EvalOptions options, int64_t length) {
  const MemoryPlan plan = plan_evaluation(s.arch, s.table, options, length);
  options.streamed |= plan.device_bytes() > s.machine.device_limit;
  return options;
}

bool can_fit(const EvalSetting& s, const EvalOptions& options, int64_t length) {
  return shortfall(s, settled(s, options, length), length).empty();
}

std::string first_knob(const EvalSetting& s, const EvalOptions& options, int64_t length) {
  if (options.streamed) {  // as a config says
    EvalOptions smaller = options, resident = options;
    smaller.window = std::min(options.window, 2);
    resident.streamed = false;
    if (can_fit(s, smaller, length)) return "--set zero_optimization.offload_param.buffer_count=2";
    if (can_fit(s, resident, length)) return "--set zero_optimization.offload_param.device=none";
  }
  EvalOptions half = options;
  half.dtype = DType::bf16;
  if (options.dtype == DType::f32 && can_fit(s, half, length)) return "--dtype bfloat16";
  for (int64_t shorter = length / 2; shorter >= 1; shorter /= 2)
    if (can_fit(s, options, shorter)) return fmt::format("--sequence-length {}", shorter);
  return "a smaller model, or higher limits (`tandem doctor` shows them)";
}

/// Settled options.
EvalOptions check_evaluation_fits(const EvalSetting& setting, const EvalOptions& asked, int64_t length) {
  const EvalOptions options = settled(setting, asked, length);
  const std::string lack = shortfall(setting, options, length);
  CHECK(lack.empty(), Status::does_not_fit, "the evaluation does not fit: " + lack, "device.memory_limit",
        first_knob(setting, asked, length));
  return options;
}

}  // namespace

MemoryPlan plan_evaluation(const Arch& arch, const ParamTable& table, const EvalOptions& options,
                           int64_t length) {
  const TrainSetup setup = forward_setup(arch, table, options, length);
  const size_t element = size_of(options.dtype), tables = Model::table_bytes(arch, length);
  MemoryPlan plan;
  plan.device["weights"] = static_cast<size_t>(plan_weights(setup, table).device_elements()) * element;
  plan.device["activations"] = model_eval_bytes(arch, options.dtype, {options.batch, length, 1}).total();
  plan.device["batches"] = plan.host["batches"] =
      static_cast<size_t>(2 * options.batch * length) * sizeof(int32_t);
  plan.device["scalars"] = plan.host["scalars"] = sizeof(double);
  if (tables > 0) plan.device["tables"] = plan.host["tables"] = tables;
  if (options.streamed) plan.host["weights"] = static_cast<size_t>(table.padded_count()) * element;
  // A block in fp32 and, on its way to the device, rounded.
  plan.staging =
      static_cast<size_t>(table.largest_block()) * (sizeof(float) + (options.streamed ? 0 : element));
  return plan;
}

EvalResult evaluate_model(const Arch& arch, const ParamTable& table, WeightSource& weights,
                          const EvalOptions& asked, const SampleSet& set, SampleRange range,
                          const Machine& machine, Device& device) {
  const int64_t length = set.sequence_length(), batch = asked.batch;
  check_targets(set, range);
  const EvalOptions options = check_evaluation_fits({arch, table, machine}, asked, length);
  const TrainSetup setup = forward_setup(arch, table, options, length);
  const MemoryPlan plan = plan_evaluation(arch, table, options, length);
  EvalWeights rounded(setup, table, plan, machine, device);
  const Buffer batch_memory = device.allocate(plan.device.at("batches"), "batches"),
               loss_memory = device.allocate(plan.device.at("scalars"), "scalars");
  const Pinned staged_batch(device, *machine.host, plan.host.at("batches"), "batches"),
      staged_loss(device, *machine.host, plan.host.at("scalars"), "scalars");
  const std::unique_ptr<Stream> stream = device.stream("compute", Purpose::compute);
  Model model(arch, table, device, *machine.host, options.dtype, length, *stream);
  Arena arena(device, device.allocate(plan.device.at("activations"), "activations"), *stream);
  const std::unique_ptr<ParamSource> source = rounded.load(weights, *stream);

  EvalResult result;
  const auto begin = std::chrono::steady_clock::now();
  const DataLoader loader(set, range, std::nullopt);
  const Tensor loss = loss_memory.tensor(DType::f64, {1}),
               landed = staged_loss.buffer.tensor(DType::f64, {1});
  stream->fill_zero(loss);
  for (uint64_t k = 0; k < range.count; k += static_cast<uint64_t>(batch)) {
    const auto rows = std::min<int64_t>(batch, static_cast<int64_t>(range.count - k));
    const Tensor staged = staged_batch.buffer.tensor(DType::i32, {2, rows, length});
    const Tensor on_device = batch_memory.tensor(DType::i32, {2, rows, length});
    const auto half = [&](Tensor both, int64_t i) { return both.rows(i, 1).view({rows, length}); };
    loader.fill(k, half(staged, 0), half(staged, 1));
    result.tokens += trained_targets({half(staged, 1).data<int32_t>(), static_cast<size_t>(rows * length)});
    stream->copy(on_device, staged);
    model.evaluate({half(on_device, 0), half(on_device, 1)}, 0, *source, arena, *stream, loss);
    stream->record().wait();  // the staging memory is written again
  }
  stream->copy(landed, loss);
  stream->record().wait();

  result.sequences = static_cast<int64_t>(range.count);
  result.sequence_length = length;
  result.loss = device.read(Scalar{landed}) / static_cast<double>(result.tokens);
  result.dtype = options.dtype;
  result.streamed = options.streamed;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tandem
