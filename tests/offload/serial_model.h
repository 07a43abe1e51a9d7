#pragma once
// The model as the serial loop uses it: weights in, sums of gradients and losses out, one thing at a time.
#include <memory>
#include <vector>

#include "core/model/model.h"
#include "tests/offload/engine_rig.h"

namespace tandem::testing {

class SerialModel {
 public:
  SerialModel(const EngineOptions& options, const ParamTable& table);
  ~SerialModel();

  struct Result {
    std::vector<double> losses;                             ///< of each micro-batch: sum over trained tokens
    std::vector<std::vector<std::vector<float>>> gradient;  ///< [block][use]: fp32 sums over the window
  };
  /// One window, micro-batch after micro-batch. forward, backward: the weights that each reads, block by
  /// block, in the training dtype.
  Result run(const FormulaTokens& window, const PlaneBits& forward, const PlaneBits& backward,
             float grad_scale);

 private:
  class Source;
  class Sink;
  [[nodiscard]] std::vector<Tensor> allocate_weights();
  void upload(Tensor into, const void* from);
  void download(void* into, Tensor from);
  const EngineOptions& options_;
  const ParamTable& table_;
  std::unique_ptr<Workers> workers_;
  TestMemory host_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::vector<Tensor> forward_weights_, backward_weights_;
  Buffer staging_;
  Pin pin_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Model> model_;
};

}  // namespace tandem::testing
