#include "tests/offload/serial_model.h"

#include <algorithm>
#include <cstring>

#include "cpu_adam/plain_pool.h"
#include "gpu/backend.h"

namespace tandem::testing {

/// Fixed weights: one copy for forward and one for backward.
class SerialModel::Source : public ParamSource {
 public:
  Source(const std::vector<Tensor>& forward, const std::vector<Tensor>& backward)
      : forward_(forward), backward_(backward) {}
  Lease acquire(BlockId block, int64_t, Pass pass, Stream& stream) override {
    return {*this, block, pass, stream,
            (pass == Pass::forward ? forward_ : backward_).at(static_cast<size_t>(block))};
  }

 private:
  void released(BlockId, Pass, Stream&) override {}
  const std::vector<Tensor>&forward_, &backward_;
};

/// One accumulator per use of a block, all of them over the whole window.
class SerialModel::Sink : public GradSink {
 public:
  Sink(Device& device, const ParamTable& table, Stream& stream)
      : sums(static_cast<size_t>(table.block_count())), opened_(sums.size()) {
    for (BlockId block = 0; block < table.block_count(); ++block)
      for (int use = 0; use < table.block(block).grad_uses; ++use) {
        const int64_t numel = table.block(block).numel;
        buffers_.push_back(device.allocate(static_cast<size_t>(numel) * sizeof(float), "gradients"));
        stream.fill_zero(
            sums[static_cast<size_t>(block)].emplace_back(buffers_.back().tensor(DType::f32, {numel})));
      }
  }
  Tensor open(BlockId block, Stream&) override {
    const auto& uses = sums.at(static_cast<size_t>(block));
    return uses.at(opened_[static_cast<size_t>(block)]++ % uses.size());
  }
  void close(BlockId, Stream&) override {}
  std::vector<std::vector<Tensor>> sums;  // [block][use]

 private:
  std::vector<size_t> opened_;
  std::vector<Buffer> buffers_;
};

SerialModel::SerialModel(const EngineOptions& options, const ParamTable& table)
    : options_(options),
      table_(table),
      workers_(make_plain_pool(1)),
      device_(gpu::open("host", {workers_.get(), size_t{256} << 20, {}, false})),
      stream_(device_->stream("serial", Purpose::compute)),
      forward_weights_(allocate_weights()),
      backward_weights_(allocate_weights()),
      staging_(host_.allocate(
          static_cast<size_t>(std::max(table.largest_block(), 2 * options.micro_batch * options.length)) * 4,
          "staging")),
      pin_(device_->pin({static_cast<std::byte*>(staging_.raw()), staging_.bytes()})),
      model_(std::make_unique<Model>(options.arch, table, *device_, host_, options.dtype, options.length,
                                     *stream_)) {
  const Window window{options.micro_batch, options.length, 1};
  const size_t bytes = model_bytes(options.arch, options.dtype, window, Keep::all).total();
  arena_ = std::make_unique<Arena>(*device_, device_->allocate(bytes, "activations"), *stream_);
}

SerialModel::~SerialModel() = default;

std::vector<Tensor> SerialModel::allocate_weights() {
  std::vector<Tensor> weights;
  for (const BlockSpec& block : table_.blocks()) {
    buffers_.push_back(
        device_->allocate(static_cast<size_t>(block.numel) * size_of(options_.dtype), "weights"));
    weights.push_back(buffers_.back().tensor(options_.dtype, {block.numel}));
  }
  return weights;
}

void SerialModel::upload(Tensor into, const void* from) {
  const Tensor staged(staging_.raw(), into.dtype(), into.shape());
  std::memcpy(staged.raw(), from, into.bytes());
  stream_->copy(into, staged);
  stream_->record().wait();
}

void SerialModel::download(void* into, Tensor from) {
  const Tensor staged(staging_.raw(), from.dtype(), from.shape());
  stream_->copy(staged, from);
  stream_->record().wait();
  std::memcpy(into, staged.raw(), from.bytes());
}

SerialModel::Result SerialModel::run(const FormulaTokens& window, const PlaneBits& forward,
                                     const PlaneBits& backward, float grad_scale) {
  for (size_t block = 0; block < forward.size(); ++block) {
    upload(forward_weights_[block], forward[block].data());
    upload(backward_weights_[block], backward[block].data());
  }
  Source source(forward_weights_, backward_weights_);
  Sink sink(*device_, table_, *stream_);
  const int64_t n = options_.micro_batch * options_.length;
  const Buffer memory = device_->allocate(static_cast<size_t>(n) * 8 + 8, "batch");
  const Tensor loss = memory.tensor(DType::f64, {1});
  const Batch batch{
      memory.tensor(DType::i32, {options_.micro_batch, options_.length}, 8),
      memory.tensor(DType::i32, {options_.micro_batch, options_.length}, 8 + static_cast<size_t>(n) * 4)};
  Result result;
  for (int64_t m = 0; m < options_.micro_batches; ++m) {
    upload(batch.tokens, window.tokens.data() + m * n);
    upload(batch.targets, window.targets.data() + m * n);
    stream_->fill_zero(loss);
    Activations kept = model_->forward({&batch, 1}, 0, Keep::all, source, *arena_, *stream_);
    model_->backward({&batch, 1}, std::move(kept), 0, grad_scale, source, sink, *stream_, loss);
    download(&result.losses.emplace_back(), loss);
  }
  for (const std::vector<Tensor>& uses : sink.sums) {
    auto& sums = result.gradient.emplace_back();
    for (const Tensor& use : uses) download(sums.emplace_back(static_cast<size_t>(use.numel())).data(), use);
  }
  return result;
}

}  // namespace tandem::testing
