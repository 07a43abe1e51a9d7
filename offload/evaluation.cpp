#include "offload/evaluation.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "cpu_adam/host_reduce.h"
#include "offload/fit.h"
#include "offload/param_store.h"
#include "offload/progress.h"

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

/// Rounds the weights to dtype and puts them on the device, one block at a time.
std::vector<Tensor> upload_weights(const ParamTable& table, WeightSource& source, DType dtype,
                                   const Buffer& memory, const Machine& machine, Device& device,
                                   Stream& stream) {
  const auto largest = static_cast<size_t>(table.largest_block());
  const Pinned staging(device, *machine.host, largest * size_of(dtype), "staging");
  std::vector<float> values(largest);
  std::vector<Tensor> blocks;
  size_t offset = 0;
  for (BlockId id = 0; id < table.block_count(); ++id) {
    const int64_t numel = table.block(id).numel;
    std::fill_n(values.begin(), numel, 0.0f);
    for (const ParamSpec& spec : table.of_block(id))
      source.read(
          spec, 0,
          std::span(values).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel)));
    const Tensor staged = staging.buffer.tensor(dtype, {numel});
    round_weights(*machine.workers, machine.isa, staged, Tensor(values.data(), DType::f32, {numel}));
    blocks.push_back(memory.tensor(dtype, {numel}, offset));
    offset += blocks.back().bytes();
    stream.copy(blocks.back(), staged);
    stream.record().wait();
  }
  return blocks;
}

struct EvalBytes {
  size_t weights = 0, activations = 0, batches = 0,
         tables = 0;   ///< of the device; host twins of the last two
  size_t staging = 0;  ///< of the host, while weights are loaded: a block in fp32 and in the dtype
  [[nodiscard]] size_t device() const { return weights + activations + batches + tables + sizeof(double); }
  [[nodiscard]] size_t host() const { return batches + tables + sizeof(double) + staging; }
};

EvalBytes eval_bytes(const Arch& arch, const ParamTable& table, DType dtype, int64_t batch, int64_t length) {
  EvalBytes bytes;
  bytes.weights = static_cast<size_t>(table.padded_count()) * size_of(dtype);
  bytes.activations = model_eval_bytes(arch, dtype, {batch, length, 1}).total();
  bytes.batches = static_cast<size_t>(2 * batch * length) * sizeof(int32_t);
  bytes.tables = Model::table_bytes(arch, length);
  bytes.staging = static_cast<size_t>(table.largest_block()) * (size_of(dtype) + sizeof(float));
  return bytes;
}

/// What stays the same while knobs are tried.
struct EvalSetting {
  const Arch& arch;
  const ParamTable& table;
  int64_t batch;
  const Machine& machine;
};

/// Why it doesn't fit; empty when it does.
std::string shortfall(const EvalSetting& s, DType dtype, int64_t length) {
  const EvalBytes bytes = eval_bytes(s.arch, s.table, dtype, s.batch, length);
  if (bytes.device() > s.machine.device_limit)
    return fmt::format("the device needs {} where {} may be used", byte_text(bytes.device()),
                       byte_text(s.machine.device_limit));
  return host_shortfall(s.machine, bytes.host(), bytes.device());
}

std::string first_knob(const EvalSetting& s, DType dtype, int64_t length) {
  if (dtype == DType::f32 && shortfall(s, DType::bf16, length).empty()) return "--dtype bfloat16";
  for (int64_t shorter = length / 2; shorter >= 1; shorter /= 2)
    if (shortfall(s, dtype, shorter).empty()) return fmt::format("--sequence-length {}", shorter);
  return "a smaller model, or higher limits (`tandem doctor` shows them)";
}

void check_evaluation_fits(const EvalSetting& setting, DType dtype, int64_t length) {
  const std::string lack = shortfall(setting, dtype, length);
  CHECK(lack.empty(), Status::does_not_fit, "the evaluation does not fit: " + lack, "device.memory_limit",
        first_knob(setting, dtype, length));
}

}  // namespace

EvalResult evaluate_model(const Arch& arch, const ParamTable& table, WeightSource& weights, DType dtype,
                          const SampleSet& set, SampleRange range, int64_t batch, const Machine& machine,
                          Device& device) {
  const int64_t length = set.sequence_length();
  check_targets(set, range);
  check_evaluation_fits({arch, table, batch, machine}, dtype, length);
  const EvalBytes bytes = eval_bytes(arch, table, dtype, batch, length);
  const Buffer weight_memory = device.allocate(bytes.weights, "weights");
  const Buffer batch_memory = device.allocate(bytes.batches, "batches"),
               loss_memory = device.allocate(sizeof(double), "scalars");
  const Pinned staged_batch(device, *machine.host, bytes.batches, "batches"),
      staged_loss(device, *machine.host, sizeof(double), "scalars");
  const std::unique_ptr<Stream> stream = device.stream("compute", Purpose::compute);
  Model model(arch, table, device, *machine.host, dtype, length, *stream);
  Arena arena(device, device.allocate(bytes.activations, "activations"), *stream);
  FixedWeights source(upload_weights(table, weights, dtype, weight_memory, machine, device, *stream),
                      Fence{});

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
    model.evaluate({half(on_device, 0), half(on_device, 1)}, 0, source, arena, *stream, loss);
    stream->record().wait();  // the staging memory is written again
  }
  stream->copy(landed, loss);
  stream->record().wait();

  result.sequences = static_cast<int64_t>(range.count);
  result.sequence_length = length;
  result.loss = device.read(Scalar{landed}) / static_cast<double>(result.tokens);
  result.dtype = dtype;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tandem
