#pragma once
// A model alone on the host device: fixed weights, gradients summed in one buffer per block. What parity
// tests look at.
#include <memory>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "cpu_adam/plain_pool.h"
#include "gpu/backend.h"
#include "tests/offload/test_memory.h"

namespace tandem::testing {

class ModelBench {
 public:
  using Fill = std::function<void(const ParamSpec&, std::span<float>)>;
  ModelBench(const Arch& arch, DType dtype, int64_t batch, int64_t length, Keep keep, const Fill& fill)
      : workers(make_plain_pool(2)),
        device(gpu::open("host", {workers.get(), size_t{1} << 30, {}, true})),
        table(arch),
        arch_(arch),
        dtype_(dtype),
        batch_(batch),
        length_(length),
        keep_(keep),
        stream(device->stream("compute", Purpose::compute)),
        model(arch, table, *device, memory, dtype, length, *stream) {
    for (const BlockSpec& block : table.blocks()) {
      weight_buffers_.push_back(
          device->allocate(static_cast<size_t>(block.numel) * size_of(dtype), "weights"));
      weights_.push_back(weight_buffers_.back().tensor(dtype, {block.numel}));
    }
    for (const ParamSpec& spec : table.params()) {
      std::vector<float> values(static_cast<size_t>(spec.numel));
      fill(spec, values);
      upload(weights_[static_cast<size_t>(spec.block)].flat(spec.offset, spec.numel), values);
    }
  }

  struct Result {
    double loss = 0;                           ///< mean over the tokens
    std::vector<float> logits;                 ///< [B*T, V]
    std::vector<std::vector<float>> gradient;  ///< of each block, [numel]
  };
  /// windows: [B, T+1] tokens.
  Result run(std::span<const int32_t> windows);

 private:
  class Source;
  class Sink;
  void upload(Tensor into, std::span<const float> values);
  std::vector<float> download(Tensor from);

 public:
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Device> device;
  TestMemory memory;
  ParamTable table;

 private:
  Arch arch_;
  DType dtype_;
  int64_t batch_, length_;
  Keep keep_;
  std::vector<Buffer> weight_buffers_;
  std::vector<Tensor> weights_;

 public:
  std::unique_ptr<Stream> stream;
  Model model;
};

}  // namespace tandem::testing
