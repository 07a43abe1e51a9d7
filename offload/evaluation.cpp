#include "offload/evaluation.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "cpu_adam/host_reduce.h"
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
          spec, std::span(values).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel)));
    const Tensor staged = staging.buffer.tensor(dtype, {numel});
    round_weights(*machine.workers, staged, Tensor(values.data(), DType::f32, {numel}));
    blocks.push_back(memory.tensor(dtype, {numel}, offset));
    offset += blocks.back().bytes();
    stream.copy(blocks.back(), staged);
    stream.record().wait();
  }
  return blocks;
}

}  // namespace

EvalResult evaluate_model(const Arch& arch, const ParamTable& table, WeightSource& weights, DType dtype,
                          const SampleSet& set, SampleRange range, int64_t batch, const Machine& machine,
                          Device& device) {
  const int64_t length = set.sequence_length();
  const size_t weight_bytes = static_cast<size_t>(table.padded_count()) * size_of(dtype);
  const size_t arena_bytes = model_eval_bytes(arch, dtype, {batch, length, 1}).total();
  const auto batch_bytes = static_cast<size_t>(2 * batch * length) * sizeof(int32_t);
  const size_t need = weight_bytes + arena_bytes + 2 * batch_bytes + Model::table_bytes(arch, length);
  CHECK(need <= machine.device_limit, Status::does_not_fit,
        fmt::format("evaluation needs {} on the device, {} may be used", byte_text(need),
                    byte_text(machine.device_limit)),
        "device.memory_limit", "--dtype bfloat16, or a shorter --sequence-length");

  const Buffer weight_memory = device.allocate(weight_bytes, "weights");
  const Buffer batch_memory = device.allocate(batch_bytes, "batches"),
               loss_memory = device.allocate(sizeof(double), "scalars");
  const Pinned staged_batch(device, *machine.host, batch_bytes, "batches"),
      staged_loss(device, *machine.host, sizeof(double), "scalars");
  const std::unique_ptr<Stream> stream = device.stream("compute", Purpose::compute);
  Model model(arch, table, device, *machine.host, dtype, length, *stream);
  Arena arena(device, device.allocate(arena_bytes, "activations"), *stream);
  FixedWeights source(upload_weights(table, weights, dtype, weight_memory, machine, device, *stream),
                      Fence{});

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
    stream->copy(on_device, staged);
    model.evaluate({half(on_device, 0), half(on_device, 1)}, 0, source, arena, *stream, loss);
    stream->record().wait();  // the staging memory is written again
  }
  stream->copy(landed, loss);
  stream->record().wait();

  EvalResult result;
  result.sequences = static_cast<int64_t>(range.count);
  result.tokens = result.sequences * length;
  result.sequence_length = length;
  result.loss = device.read(Scalar{landed}) / static_cast<double>(result.tokens);
  result.dtype = dtype;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tandem
