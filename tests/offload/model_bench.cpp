#include "tests/offload/model_bench.h"

#include <cstring>

namespace tandem::testing {

class ModelBench::Source : public ParamSource {
 public:
  explicit Source(const std::vector<Tensor>& weights) : weights_(weights) {}
  Lease acquire(BlockId block, int64_t, Pass pass, Stream& stream) override {
    return {*this, block, pass, stream, weights_.at(static_cast<size_t>(block))};
  }

 private:
  void released(BlockId, Pass, Stream&) override {}
  const std::vector<Tensor>& weights_;
};

/// All uses of a block add to one accumulator.
class ModelBench::Sink : public GradSink {
 public:
  Sink(Device& device, const ParamTable& table, Stream& stream) {
    for (const BlockSpec& block : table.blocks()) {
      buffers_.push_back(device.allocate(static_cast<size_t>(block.numel) * sizeof(float), "gradients"));
      sums.push_back(buffers_.back().tensor(DType::f32, {block.numel}));
      stream.fill_zero(sums.back());
    }
  }
  Tensor open(BlockId block, Stream&) override { return sums.at(static_cast<size_t>(block)); }
  void close(BlockId, Stream&) override {}
  std::vector<Tensor> sums;

 private:
  std::vector<Buffer> buffers_;
};

void ModelBench::upload(Tensor into, std::span<const float> values) {
  const Buffer staging = memory.allocate(into.bytes(), "staging");
  const Pin pin = device->pin({static_cast<std::byte*>(staging.raw()), staging.bytes()});
  const Tensor host = staging.tensor(into.dtype(), {into.numel()});
  for (size_t i = 0; i < values.size(); ++i) {
    if (into.dtype() == DType::f32) host.data<float>()[i] = values[i];
    if (into.dtype() == DType::bf16) host.data<bf16>()[i] = round_weight<bf16>(values[i]);
    if (into.dtype() == DType::f16) host.data<f16>()[i] = round_weight<f16>(values[i]);
  }
  stream->copy(into, host);
  stream->record().wait();
}

std::vector<float> ModelBench::download(Tensor from) {
  const Buffer staging = memory.allocate(from.bytes(), "staging");
  const Pin pin = device->pin({static_cast<std::byte*>(staging.raw()), staging.bytes()});
  const Tensor host = staging.tensor(DType::f32, {from.numel()});
  stream->copy(host, from.flat());
  stream->record().wait();
  return {host.data<float>(), host.data<float>() + host.numel()};
}

ModelBench::Result ModelBench::run(std::span<const int32_t> windows) {
  const int64_t n = batch_ * length_;
  const Buffer host = memory.allocate(static_cast<size_t>(2 * n) * 4 + 16, "batch");
  const Pin pin = device->pin({static_cast<std::byte*>(host.raw()), host.bytes()});
  const Tensor staged = host.tensor(DType::i32, {2, batch_, length_}),
               loss_host = host.tensor(DType::f64, {1}, static_cast<size_t>(2 * n) * 4);
  for (int64_t b = 0; b < batch_; ++b)
    for (int64_t t = 0; t < length_; ++t)
      for (int64_t shift : {0, 1})
        staged.data<int32_t>()[shift * n + b * length_ + t] =
            windows[static_cast<size_t>(b * (length_ + 1) + t + shift)];
  const Buffer on_device = device->allocate(static_cast<size_t>(2 * n) * 4 + 16, "batch");
  const Tensor tokens = on_device.tensor(DType::i32, {2, batch_, length_}),
               loss = on_device.tensor(DType::f64, {1}, static_cast<size_t>(2 * n) * 4);
  stream->copy(tokens, staged);
  stream->fill_zero(loss);
  const Batch batch{tokens.rows(0, 1).view({batch_, length_}), tokens.rows(1, 1).view({batch_, length_})};

  const size_t bytes = std::max(model_bytes(arch_, dtype_, {batch_, length_, 1}, keep_).total(),
                                model_eval_bytes(arch_, dtype_, {batch_, length_, 1}).total());
  Arena arena(*device, device->allocate(bytes, "activations"), *stream);
  Source source(weights_);
  Sink sink(*device, table, *stream);
  Result result;
  Activations kept = model.forward({&batch, 1}, 0, keep_, source, arena, *stream);
  model.backward({&batch, 1}, std::move(kept), 0, 1.0f / static_cast<float>(n), source, sink, *stream, loss);
  stream->copy(loss_host, loss);
  stream->record().wait();
  result.loss = device->read(Scalar{loss_host}) / static_cast<double>(n);
  for (const Tensor& sum : sink.sums) result.gradient.push_back(download(sum));

  const Buffer logits = device->allocate(static_cast<size_t>(n * arch_.vocab) * 4, "logits");
  model.logits(batch, 0, source, arena, *stream, logits.tensor(DType::f32, {n, arch_.vocab}));
  result.logits = download(logits.tensor(DType::f32, {n, arch_.vocab}));
  return result;
}

}  // namespace tandem::testing
